package grant

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
)

const secret = "0123456789abcdef0123456789abcdef"

func part(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func hs256(key, header, claims string) string {
	text := part(header) + "." + part(claims)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func TestVerify(t *testing.T) {
	now := time.Unix(1000, 0)
	public, private, _ := ed25519.GenerateKey(nil)
	jwks := fmt.Sprintf(`{"keys":[{"kty":"RSA","n":"AQAB"},{"kty":"oct","kid":"a","k":%q},{"kty":"OKP","crv":"Ed25519","kid":"b","x":%q}]}`,
		part(secret), base64.RawURLEncoding.EncodeToString(public))
	keys, err := ParseKeys([]byte(jwks))
	if err != nil || keys.Len() != 2 {
		t.Fatal(err, keys)
	}
	eddsa := func(header, claims string) string {
		text := part(header) + "." + part(claims)
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
	}
	good := `{"tenant":"a_b","exp":2000,"sub":"ann"}`
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"hs256":              {hs256(secret, `{"alg":"HS256"}`, good), nil},
		"eddsa":              {eddsa(`{"alg":"EdDSA","kid":"b"}`, good), nil},
		"other kid":          {eddsa(`{"alg":"EdDSA","kid":"a"}`, good), ErrToken},
		"none":               {part(`{"alg":"none"}`) + "." + part(good) + ".", ErrToken},
		"another key":        {hs256(strings.Repeat("x", 32), `{"alg":"HS256"}`, good), ErrToken},
		"public key as hmac": {hs256(string(public), `{"alg":"HS256"}`, good), ErrToken},
		"critical":           {hs256(secret, `{"alg":"HS256","crit":["x"]}`, good), ErrToken},
		"expired":            {hs256(secret, `{"alg":"HS256"}`, `{"tenant":"a_b","exp":1000}`), ErrExpired},
		"never expires":      {hs256(secret, `{"alg":"HS256"}`, `{"tenant":"a_b"}`), ErrToken},
		"no tenant":          {hs256(secret, `{"alg":"HS256"}`, `{"exp":2000}`), ErrToken},
		"later":              {hs256(secret, `{"alg":"HS256"}`, `{"tenant":"a","exp":2000,"nbf":1031}`), ErrToken},
		"a bit later":        {hs256(secret, `{"alg":"HS256"}`, `{"tenant":"a","exp":2000,"nbf":1030}`), nil},
		"empty":              {"", ErrToken},
		"changed":            {hs256(secret, `{"alg":"HS256"}`, good) + "A", ErrToken},
		"long":               {strings.Repeat("a", maxToken+1), ErrToken},
	} {
		g, err := keys.Verify(c.token, now)
		if !errors.Is(err, c.want) || c.want != nil && lattice.KindOf(err) != lattice.Denied {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.want == nil && (len(g.Tenants) != 1 || !g.Expires.Equal(time.Unix(2000, 0))) {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

func TestAllows(t *testing.T) {
	now := time.Unix(1000, 0)
	keys, err := ParseKeys([]byte("# ours\n" + secret + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		claims, tenant, fork, streams, entity string
		want                                  bool
	}{
		{`"tenant":"a"`, "a", "f", "s", "", true},
		{`"tenant":"a"`, "b", "f", "s", "", false},
		{`"tenant":["a","b"]`, "b", "f", "s", "e", true},
		{`"tenant":"a","fork":"g"`, "a", "f", "s", "", false},
		{`"tenant":"a","fork":[]`, "a", "f", "s", "", false},
		{`"tenant":"a","fork":""`, "a", "f", "s", "", false},
		{`"tenant":"a","stream":"s"`, "a", "f", "s", "", true},
		{`"tenant":"a","stream":"s"`, "a", "f", "s,t", "", false},
		{`"tenant":"a","stream":null`, "a", "f", "s", "", false},
		{`"tenant":"a","entity":"e"`, "a", "f", "s", "e", true},
		{`"tenant":"a","entity":"e"`, "a", "f", "s", "", false},
		{`"tenant":"a","entity":["e"]`, "a", "f", "s", "x", false},
	} {
		g, err := keys.Verify(hs256(secret, `{"alg":"HS256"}`, `{"exp":2000,`+c.claims+`}`), now)
		if err != nil {
			t.Fatal(c.claims, err)
		}
		if got := g.Allows(c.tenant, c.fork, strings.Split(c.streams, ","), c.entity); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestParseKeysRefuses(t *testing.T) {
	for _, text := range []string{
		"", "short", "{", `{"keys":[]}`, `{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}`, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}`,
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
	} {
		if k, err := ParseKeys([]byte(text)); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%q: %v, %v", text, k, err)
		}
	}
}

// FuzzVerify checks that no token that is not signed is taken, and none panics.
func FuzzVerify(f *testing.F) {
	f.Add(hs256("another key of at least 32 bytes!", `{"alg":"HS256"}`, `{"tenant":"a","exp":2000}`))
	f.Add("a.b.c")
	keys, err := ParseKeys([]byte(secret))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if g, err := keys.Verify(token, time.Unix(1000, 0)); err == nil {
			t.Errorf("%+v", g)
		}
	})
}
