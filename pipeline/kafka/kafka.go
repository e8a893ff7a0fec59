// Package kafka says how a cluster is reached: addresses, TLS, SASL. A node of
// ours, Apache Kafka, Redpanda and MSK differ in this and in nothing else. It
// connects nowhere itself.
package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	lattice "github.com/lattice-log/lattice"
)

// Mechanisms are the SASL mechanisms that Config knows.
func Mechanisms() []string { return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} }

// Config says how to reach a cluster.
type Config struct {
	// Bootstrap are the addresses, HOST:PORT, that are asked first; at least one.
	Bootstrap []string
	// TLS encrypts the connection. CAFile, CertFile and KeyFile (PEM) imply it:
	// whom to trust beside the system's authorities' list, and who we are.
	TLS                       bool
	CAFile, CertFile, KeyFile string
	// Mechanism is one of Mechanisms; empty: no SASL. The password is the first
	// line of PasswordFile.
	Mechanism, User, PasswordFile string
}

// Options checks the configuration, reads the files that it names, and returns
// what a client is made with.
func (c Config) Options() ([]kgo.Opt, error) {
	if len(c.Bootstrap) == 0 {
		return nil, lattice.E(lattice.Invalid, errors.New("kafka: no bootstrap address: want HOST:PORT"))
	}
	for _, a := range c.Bootstrap {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: bootstrap address %q: want HOST:PORT", a))
		}
	}
	opts := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap...)}
	if c.TLS || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" {
		t, err := c.tls()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	if c.Mechanism == "" {
		if c.User != "" || c.PasswordFile != "" {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: a user or a password without a SASL mechanism: name one of %s", strings.Join(Mechanisms(), ", ")))
		}
		return opts, nil
	}
	auth, err := c.sasl()
	if err != nil {
		return nil, err
	}
	return append(opts, auth), nil
}

func (c Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: read the authorities: %w", err))
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: %s has no certificate in PEM", c.CAFile))
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, lattice.E(lattice.Invalid, errors.New("kafka: a certificate needs its key, and a key its certificate"))
	}
	if c.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: read our certificate: %w", err))
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}

func (c Config) sasl() (kgo.Opt, error) {
	if c.User == "" || c.PasswordFile == "" {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: SASL %s needs a user and a file with the password", c.Mechanism))
	}
	b, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: read the password: %w", err))
	}
	password, _, _ := strings.Cut(string(b), "\n")
	password = strings.TrimSuffix(password, "\r")
	switch c.Mechanism {
	case "PLAIN":
		return kgo.SASL(plain.Auth{User: c.User, Pass: password}.AsMechanism()), nil
	case "SCRAM-SHA-256":
		return kgo.SASL(scram.Auth{User: c.User, Pass: password}.AsSha256Mechanism()), nil
	case "SCRAM-SHA-512":
		return kgo.SASL(scram.Auth{User: c.User, Pass: password}.AsSha512Mechanism()), nil
	}
	return nil, lattice.E(lattice.Invalid, fmt.Errorf("kafka: SASL mechanism %q: want one of %s", c.Mechanism, strings.Join(Mechanisms(), ", ")))
}
