package grant

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
)

const (
	maxToken   = 8 << 10
	maxKeys    = 64
	leastHMAC  = 32               // bytes: RFC 7518, 3.2
	clockSlack = 30 * time.Second // by which the issuer's clock may be ahead, for nbf
)

// ErrToken means that a token is missing, malformed, or signed by nobody we trust.
var ErrToken = lattice.E(lattice.Denied, errors.New("the token is missing, malformed, or not signed with a key that is trusted here"))

// ErrExpired means that a token is over.
var ErrExpired = lattice.E(lattice.Denied, errors.New("the token has expired: get a new one"))

// Keys are the keys that tokens may be signed with. They never change; many
// goroutines can use them.
type Keys struct{ keys []key }

type key struct {
	id     string // empty: not named
	secret []byte // of HS256
	public ed25519.PublicKey
}

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.keys) }

// ParseKeys reads a JWKS (RFC 7517: kty oct, or OKP with crv Ed25519; others are passed over), an
// Ed25519 public key in PEM, or else lines, each a secret for HS256 of at least 32 bytes.
func ParseKeys(b []byte) (*Keys, error) {
	text := strings.TrimSpace(string(b))
	var k Keys
	var err error
	switch {
	case strings.HasPrefix(text, "{"):
		err = k.jwks([]byte(text))
	case strings.HasPrefix(text, "-----BEGIN"):
		err = k.pem([]byte(text))
	default:
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				if len(line) < leastHMAC {
					return nil, invalid("a secret of %d bytes: HS256 wants at least %d", len(line), leastHMAC)
				}
				k.keys = append(k.keys, key{secret: []byte(line)})
			}
		}
	}
	switch {
	case err != nil:
		return nil, err
	case len(k.keys) == 0:
		return nil, invalid("no key for HS256 or EdDSA")
	case len(k.keys) > maxKeys:
		return nil, invalid("%d keys, the limit is %d", len(k.keys), maxKeys)
	}
	return &k, nil
}

func invalid(format string, args ...any) error {
	return lattice.E(lattice.Invalid, fmt.Errorf("token keys: "+format, args...))
}

func (k *Keys) jwks(b []byte) error {
	var set struct {
		Keys []struct{ Kty, Crv, Kid, Use, K, X string }
	}
	if err := json.Unmarshal(b, &set); err != nil {
		return invalid("read the JWKS: %w", err)
	}
	for i, j := range set.Keys {
		switch {
		case j.Use != "" && j.Use != "sig":
		case j.Kty == "oct":
			secret, err := base64.RawURLEncoding.DecodeString(j.K)
			if err != nil || len(secret) < leastHMAC {
				return invalid("key %d of the JWKS: k must be base64url of at least %d bytes", i, leastHMAC)
			}
			k.keys = append(k.keys, key{id: j.Kid, secret: secret})
		case j.Kty == "OKP" && j.Crv == "Ed25519":
			x, err := base64.RawURLEncoding.DecodeString(j.X)
			if err != nil || len(x) != ed25519.PublicKeySize {
				return invalid("key %d of the JWKS: x must be base64url of %d bytes", i, ed25519.PublicKeySize)
			}
			k.keys = append(k.keys, key{id: j.Kid, public: x})
		}
	}
	return nil
}

func (k *Keys) pem(b []byte) error {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "PUBLIC KEY" {
			return invalid("a PEM block %q: want PUBLIC KEY (a private one does not belong here)", block.Type)
		}
		pub, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return invalid("read the public key: %w", err)
		}
		ed, ok := pub.(ed25519.PublicKey)
		if !ok {
			return invalid("a public key of type %T: want Ed25519", pub)
		}
		k.keys = append(k.keys, key{public: ed})
	}
	return nil
}

// Verify returns what a token grants at the time now.
func (k *Keys) Verify(token string, now time.Time) (Grant, error) {
	if len(token) > maxToken {
		return Grant{}, ErrToken
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Grant{}, ErrToken
	}
	var header struct {
		Alg  string          `json:"alg"`
		Kid  string          `json:"kid"`
		Crit json.RawMessage `json:"crit"`
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || decode(parts[0], &header) != nil || header.Crit != nil {
		return Grant{}, ErrToken
	}
	if !k.signed(header.Alg, header.Kid, []byte(parts[0]+"."+parts[1]), signature) {
		return Grant{}, ErrToken
	}
	return claims(parts[1], now)
}

// signed reports whether one of the keys made the signature, with its own algorithm.
func (k *Keys) signed(alg, id string, text, signature []byte) bool {
	for _, key := range k.keys {
		if id != "" && key.id != "" && id != key.id {
			continue
		}
		switch {
		case alg == "HS256" && key.secret != nil:
			mac := hmac.New(sha256.New, key.secret)
			mac.Write(text)
			if hmac.Equal(mac.Sum(nil), signature) {
				return true
			}
		case alg == "EdDSA" && key.public != nil:
			if ed25519.Verify(key.public, text, signature) {
				return true
			}
		}
	}
	return false
}

func decode(part string, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func claims(part string, now time.Time) (Grant, error) {
	var c struct {
		Sub    string   `json:"sub"`
		Tenant names    `json:"tenant"`
		Fork   names    `json:"fork"`
		Stream names    `json:"stream"`
		Entity names    `json:"entity"`
		Exp    *float64 `json:"exp"`
		Nbf    *float64 `json:"nbf"`
	}
	if decode(part, &c) != nil || len(c.Tenant) == 0 || c.Exp == nil || *c.Exp < 0 || *c.Exp > 1<<40 {
		return Grant{}, fmt.Errorf("%w: it must have the claims tenant and exp", ErrToken)
	}
	g := Grant{Subject: c.Sub, Tenants: c.Tenant, Forks: c.Fork, Streams: c.Stream, Entities: c.Entity, Expires: time.Unix(int64(*c.Exp), 0)}
	switch {
	case !now.Before(g.Expires):
		return Grant{}, ErrExpired
	case c.Nbf != nil && float64(now.Add(clockSlack).Unix()) < *c.Nbf:
		return Grant{}, fmt.Errorf("%w: it is not valid yet", ErrToken)
	}
	return g, nil
}

// names is a claim of one text or a list of them. An empty list allows nothing.
type names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *names) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*n = names{one}
		if one == "" {
			*n = names{}
		}
		return nil
	}
	list := []string{}
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*n = list
	return nil
}
