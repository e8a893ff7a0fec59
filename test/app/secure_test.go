package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/lattice-log/lattice/internal/testkit/realkafka"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// secure runs the roles against Apache Kafka's listener with TLS and SASL: nothing but
// flags that say how it is reached. What it does not let in is said, and fails no intent.
func secure(t *testing.T, bin string) {
	k := realkafka.Start(t)
	secret := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	password := secret("password", realkafka.Password)
	w := newWorld(t, bin, broker{address: k.Secure}, sqldbtest.SQLite(t), sqldbtest.SQLite(t))
	w.reach = func(role string) []string {
		mechanism := "PLAIN"
		if role == "projector" {
			mechanism = "SCRAM-SHA-512"
		}
		return []string{"--bootstrap", k.Secure, "--kafka-ca", k.CA, "--kafka-sasl", mechanism, "--kafka-user", realkafka.User, "--kafka-password-file", password}
	}
	w.consumer = secured(t, k)
	w.startAll()
	oneIntent(w)
	w.audit("one intent")

	runtime := w.role("runtime")
	for _, bad := range []struct {
		flags []string
		says  string
	}{
		{[]string{"--kafka-password-file", secret("wrong", "wrong")}, "SASL_AUTHENTICATION_FAILED"},
		{[]string{"--kafka-ca", "", "--kafka-tls"}, "x509"},
	} {
		w.restart(runtime, bad.flags...)
		if a := w.follow("user-8", fmt.Sprintf("artist-%d", w.next.Add(1))); !a.Accepted {
			t.Errorf("an intent with %v: %+v", bad.flags, a)
		}
		w.until(fmt.Sprint(bad.flags, " is refused, and said"), func() bool {
			b, err := os.ReadFile(runtime.log.Name())
			return err == nil && strings.Contains(string(b), bad.says)
		})
	}
	w.restart(runtime)
	w.audit("with the right ones again")
}

func secured(t *testing.T, k *realkafka.Broker) []kgo.Opt {
	pem, err := os.ReadFile(k.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return []kgo.Opt{
		kgo.SeedBrokers(k.Secure), kgo.DialTLSConfig(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}),
		kgo.SASL(plain.Auth{User: realkafka.User, Pass: realkafka.Password}.AsMechanism()),
	}
}
