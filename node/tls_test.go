package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// certificate writes a self-signed certificate for 127.0.0.1 and its key, and
// returns the paths and the roots that trust it.
func certificate(t *testing.T) (TLS, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, files.Cert, string(chain), 0o644)
	write(t, files.Key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})), 0o600)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	return files, roots
}

// TestTLS checks that with a certificate both listeners speak TLS, and only TLS.
func TestTLS(t *testing.T) {
	cfg := local(t)
	var roots *x509.CertPool
	cfg.TLS, roots = certificate(t)
	n, _ := runNode(t, cfg)
	trust := &tls.Config{RootCAs: roots}

	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Info().Kafka), kgo.DialTLSConfig(trust))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.Ping(t.Context()); err != nil {
		t.Errorf("kafka: %v", err)
	}

	tr := &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get("https://" + n.Info().HTTP + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
		t.Errorf("https: %s over %s", res.Status, res.Proto)
	}
	plain := &http.Transport{}
	defer plain.CloseIdleConnections()
	if res, err := (&http.Client{Transport: plain}).Get("http://" + n.Info().HTTP + "/readyz"); err == nil {
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("the listener answers without TLS")
		}
	}
}
