package kafka_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/kafka"
)

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRefused(t *testing.T) {
	one := []string{"127.0.0.1:9092"}
	for says, c := range map[string]kafka.Config{
		"no bootstrap":             {},
		`"localhost"`:              {Bootstrap: []string{"localhost"}},
		"read the authorities":     {Bootstrap: one, CAFile: "/nowhere"},
		"no certificate in PEM":    {Bootstrap: one, CAFile: file(t, "x")},
		"needs its key":            {Bootstrap: one, CertFile: file(t, "x")},
		"read our certificate":     {Bootstrap: one, CertFile: file(t, "x"), KeyFile: file(t, "x")},
		"without a SASL mechanism": {Bootstrap: one, User: "u"},
		"needs a user":             {Bootstrap: one, Mechanism: "PLAIN"},
		"read the password":        {Bootstrap: one, Mechanism: "PLAIN", User: "u", PasswordFile: "/nowhere"},
		"SCRAM-SHA-256":            {Bootstrap: one, Mechanism: "SCRAM", User: "u", PasswordFile: file(t, "x")},
	} {
		if _, err := c.Options(); lattice.KindOf(err) != lattice.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want one that says %q", c, err, says)
		}
	}
}

func TestSASL(t *testing.T) {
	for _, mechanism := range kafka.Mechanisms() {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "ann", "geheim"))
		if err != nil {
			t.Fatal(err)
		}
		for password, ok := range map[string]bool{"geheim\n": true, "geheim\r\n": true, "wrong": false} {
			opts, err := kafka.Config{Bootstrap: c.ListenAddrs(), Mechanism: mechanism, User: "ann", PasswordFile: file(t, password)}.Options()
			if err != nil {
				t.Fatal(err)
			}
			client, err := kgo.NewClient(append(opts, kgo.RetryTimeout(time.Second))...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := client.Ping(ctx); (err == nil) != ok {
				t.Errorf("%s with password %q: %v", mechanism, password, err)
			}
			cancel()
			client.Close()
		}
		c.Close()
	}
}
