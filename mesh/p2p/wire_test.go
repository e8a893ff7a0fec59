package p2p

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

func TestGolden(t *testing.T) {
	hash := func(b byte) lattice.Hash { return lattice.Hash(bytes.Repeat([]byte{b}, 32)) }
	claim := roster.Claim{ID: hash(3), Author: lattice.NodeID(hash(4))}
	copy(claim.Proof[:], bytes.Repeat([]byte{5}, 64))
	x := func(b string, n int) string { return strings.Repeat(b, n) }
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"claim", joinRequest{lattice.StoreID(hash(1)), lattice.NodeID(hash(2)), claim}.encode(),
			"4c4a0100" + x("01", 32) + x("02", 32) + x("03", 32) + x("04", 32) + x("05", 64)},
		{"welcome", joinAnswer{joinWelcome, []byte("gen"), []string{"/a", "/bc"}}.encode(), "4c4a0100" + "00000003" + "67656e" + "02" + "02" + "2f61" + "03" + "2f6263"},
		{"refused", joinAnswer{status: joinRefused}.encode(), "4c4a0101"},
		{"used", joinAnswer{status: joinUsed}.encode(), "4c4a0102"},
		{"revoked", joinAnswer{status: joinRevoked}.encode(), "4c4a0103"},
		{"expired", joinAnswer{status: joinExpired}.encode(), "4c4a0104"},
		{"later", joinAnswer{status: joinLater}.encode(), "4c4a0105"},
		{"snapshot, please", snapshotRequest{lattice.StoreID(hash(1)), reconcile.Snapshot{Root: hash(2), Sum: hash(3), Bytes: 0x0405}, 0x0203}.encode(),
			"4c530100" + x("01", 32) + x("02", 32) + x("03", 32) + "0000000000000405" + "0000000000000203"},
		{"it follows", snapshotAnswer{snapshotFollows, 0x0202}.encode(), "4c530100" + "0000000000000202"},
		{"none", snapshotAnswer{status: snapshotNone}.encode(), "4c530101" + "0000000000000000"},
		{"where are others", encodeHearsayRequest(lattice.StoreID(hash(1))), "4c510100" + x("01", 32)},
		{"there", encodeHearsay([]whereabouts{{lattice.NodeID(hash(2)), []string{"/a"}}, {node: lattice.NodeID(hash(3))}}),
			"4c510100" + "0002" + x("02", 32) + "01" + "02" + "2f61" + x("03", 32) + "00"},
		{"was it removed", encodeFarewellRequest(lattice.StoreID(hash(1))), "4c4f0100" + x("01", 32)},
		{"not now", snapshotAnswer{status: snapshotLater}.encode(), "4c530102" + "0000000000000000"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// FuzzWire checks, for any bytes: no panic, and what parses encodes to the same bytes.
func FuzzWire(f *testing.F) {
	f.Add(joinRequest{}.encode())
	f.Add(joinAnswer{joinWelcome, []byte("gen"), []string{"/a", "/bc"}}.encode())
	f.Add(joinAnswer{status: joinLater}.encode())
	f.Add(snapshotRequest{name: reconcile.Snapshot{Bytes: 9}, offset: 9}.encode())
	f.Add(snapshotAnswer{bytes: 7}.encode())
	f.Add(encodeHearsayRequest(lattice.StoreID{1}))
	f.Add(encodeFarewellRequest(lattice.StoreID{1}))
	f.Add(encodeHearsay([]whereabouts{{lattice.NodeID{2}, []string{"/a", "/b"}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseJoinRequest(b); err == nil && !bytes.Equal(r.encode(), b) {
			t.Errorf("claim %x encodes to %x", b, r.encode())
		}
		if a, err := readJoinAnswer(bytes.NewReader(b)); err == nil && !bytes.HasPrefix(b, a.encode()) {
			t.Errorf("answer %x encodes to %x", b, a.encode())
		} else if err == nil && (len(a.genesis) > maxGenesis || len(a.addresses) > maxAddresses) {
			t.Errorf("an answer beyond its bounds")
		}
		if r, err := parseSnapshotRequest(b); err == nil && !bytes.Equal(r.encode(), b) {
			t.Errorf("request %x encodes to %x", b, r.encode())
		}
		if s, err := parseHearsayRequest(b); err == nil && !bytes.Equal(encodeHearsayRequest(s), b) {
			t.Errorf("request %x is another when encoded", b)
		}
		if s, err := parseFarewellRequest(b); err == nil && !bytes.Equal(encodeFarewellRequest(s), b) {
			t.Errorf("request %x is another when encoded", b)
		}
		if all, err := parseHearsay(b); err == nil && !bytes.Equal(encodeHearsay(all), b) {
			t.Errorf("hearsay %x encodes to %x", b, encodeHearsay(all))
		}
		if a, err := parseSnapshotAnswer(b); err == nil && !bytes.Equal(a.encode(), b) {
			t.Errorf("answer %x encodes to %x", b, a.encode())
		}
	})
}

const goldenBook = `{
 "version": 1,
 "peers": [
  {
   "node": "0100000000000000000000000000000000000000000000000000000000000000",
   "addresses": [
    "/ip4/192.0.2.1/tcp/7400",
    "/dns4/a.example/udp/7400/quic-v1"
   ],
   "seen": 1700000000000,
   "invited": [
    "0900000000000000000000000000000000000000000000000000000000000000"
   ]
  },
  {
   "node": "0200000000000000000000000000000000000000000000000000000000000000",
   "addresses": [],
   "seen": 0
  }
 ]
}
`

func TestGoldenBook(t *testing.T) {
	want := map[lattice.NodeID]*listing{
		{1}: {[]string{"/ip4/192.0.2.1/tcp/7400", "/dns4/a.example/udp/7400/quic-v1"}, 1_700_000_000_000, []lattice.StoreID{{9}}},
		{2}: {addresses: []string{}},
	}
	got, err := parseBook([]byte(goldenBook))
	check(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	b, err := encodeBook(want)
	check(t, err)
	if string(b) != goldenBook {
		t.Errorf("got %s", b)
	}
	for what, c := range map[string]struct {
		text string
		want error
	}{
		"nothing":         {"", errBook},
		"no version":      {"{}", errBook},
		"a later version": {`{"version":2,"peers":{}}`, errBookVersion},
		"another field":   {`{"version":1,"more":1}`, errBook},
		"no node":         {`{"version":1,"peers":[{"node":"xx"}]}`, errBook},
		"no address":      {strings.Replace(goldenBook, "/tcp/", "/sctp/", 1), errBook},
		"no store":        {strings.Replace(goldenBook, "0900", "zz00", 1), errBook},
	} {
		if _, err := parseBook([]byte(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzBook checks, for any bytes: no panic, and what parses is bounded and encodes to
// what parses to the same.
func FuzzBook(f *testing.F) {
	f.Add([]byte(goldenBook))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseBook(b)
		if err != nil {
			return
		}
		if len(got) > maxListed {
			t.Error("too many")
		}
		b, err = encodeBook(got)
		check(t, err)
		again, err := parseBook(b)
		check(t, err)
		if x, err := encodeBook(again); err != nil || !bytes.Equal(x, b) {
			t.Errorf("%s became %s", b, x)
		}
	})
}
