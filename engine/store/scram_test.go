package store

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

// TestScramCredential: the example of RFC 7677, section 3.
func TestScramCredential(t *testing.T) {
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	if err != nil {
		t.Fatal(err)
	}
	salted, err := pbkdf2.Key(sha256.New, "pencil", salt, 4096, 32)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewScramCredential("user", ScramSHA256, 4096, salt, salted)
	if err != nil {
		t.Fatal(err)
	}
	if got := base64.StdEncoding.EncodeToString(c.StoredKey); got != "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=" {
		t.Errorf("stored key %s", got)
	}
	if got := base64.StdEncoding.EncodeToString(c.ServerKey); got != "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=" {
		t.Errorf("server key %s", got)
	}
	b := c.encode()
	const golden = "01" + "00001000" + "0010" + "5b6d99689d12358eec" + "a04b141236fa81"
	if got := hex.EncodeToString(b)[:len(golden)]; got != golden {
		t.Errorf("begins with %s, want %s", got, golden)
	}
	for n := range len(b) {
		if _, err := decodeScram([]byte("\x01user"), b[:n]); lattice.KindOf(err) != lattice.Corrupt {
			t.Errorf("%d bytes of %d: %v", n, len(b), err)
		}
	}
	back, err := decodeScram([]byte("\x01user"), b)
	if err != nil || back.User != "user" || back.Mechanism != ScramSHA256 || back.Iterations != 4096 || string(back.StoredKey) != string(c.StoredKey) {
		t.Errorf("%+v %v", back, err)
	}
	for name, f := range map[string]func() error{
		"no name":        func() error { _, err := NewScramCredential("", ScramSHA256, 4096, salt, salted); return err },
		"few iterations": func() error { _, err := NewScramCredential("u", ScramSHA256, 4095, salt, salted); return err },
		"no password":    func() error { _, err := NewScramCredential("u", ScramSHA512, 4096, salt, nil); return err },
		"much password": func() error {
			_, err := NewScramCredential("u", ScramSHA512, 4096, salt, make([]byte, 1025))
			return err
		},
		"no salt": func() error { _, err := NewScramCredential("u", ScramSHA256, 4096, nil, salted); return err },
	} {
		if err := f(); lattice.KindOf(err) != lattice.Invalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewScramCredential("u", 3, 4096, salt, salted); err == nil || lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("an unknown mechanism: %v", err)
	}
}
