package spec

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestColumns checks what each type of column takes, how what it holds is written, and
// that it is read back the same in every form in which databases answer.
func TestColumns(t *testing.T) {
	at := time.Date(2024, 6, 25, 16, 0, 0, 120_000_000, time.UTC)
	for _, tc := range []struct {
		col    Column
		in     any
		want   any
		answer []any // what a database may answer
		json   any
	}{
		{Column{Type: Text}, "x", "x", []any{"x", []byte("x")}, "x"},
		{Column{Type: Text}, int64(5), "5", nil, "5"},
		{Column{Type: Text}, 2.5, "2.5", nil, "2.5"},
		{Column{Type: Text}, true, "true", nil, "true"},
		{Column{Type: Text}, map[string]any{"b": int64(1), "a": nil}, `{"a":null,"b":1}`, nil, `{"a":null,"b":1}`},
		{Column{Type: Text, Size: 2}, "äö", "äö", nil, "äö"},
		{Column{Type: SmallInt}, int64(-32768), int64(-32768), []any{int64(-32768), int16(-32768), "-"}, int64(-32768)},
		{Column{Type: Integer}, 5.0, int64(5), []any{int64(5), int32(5), int(5)}, int64(5)},
		{Column{Type: BigInt}, int64(-1 << 63), int64(-1 << 63), []any{int64(-1 << 63)}, int64(-1 << 63)},
		{Column{Type: Double}, int64(5), 5.0, []any{5.0, int64(5), float32(5)}, 5.0},
		{Column{Type: Boolean}, true, true, []any{true, int64(1)}, true},
		{Column{Type: Boolean}, false, false, []any{false, int64(0)}, false},
		{Column{Type: UUID}, "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", []any{"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
		{Column{Type: Timestamp}, at.UnixMilli(), at, []any{at, "2024-06-25 16:00:00.12+00", "2024-06-25 18:00:00.12+02", "2024-06-25T16:00:00.120000Z", at.UnixMilli()}, "2024-06-25T16:00:00.12Z"},
		{Column{Type: Timestamp}, "2024-06-25T18:00:00.12+02:00", at, nil, "2024-06-25T16:00:00.12Z"},
		{Column{Type: Timestamp}, "2024-06-25", at.Truncate(24 * time.Hour), nil, "2024-06-25T00:00:00Z"},
		{Column{Type: Decimal}, "12.50", "12.5", []any{"12.5", []byte("12.50"), 12.5}, "12.5"},
		{Column{Type: Decimal}, 0.1, "0.1", nil, "0.1"},
		{Column{Type: Decimal, Precision: 4, Scale: 2}, int64(-12), "-12.00", []any{"-12", int64(-12), -12.0}, "-12.00"},
		{Column{Type: Decimal, Precision: 2, Scale: 2}, "0.999", "1.00", nil, nil},
		{Column{Type: Bytes}, "aGk=", []byte("hi"), []any{[]byte("hi")}, "aGk="},
	} {
		got, err := tc.col.Convert(tc.in)
		if tc.json == nil { // refused
			if err == nil {
				t.Errorf("%v of %v is %#v, want a refusal", tc.col, tc.in, got)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%v of %v = %#v, %v; want %#v", tc.col, tc.in, got, err, tc.want)
			continue
		}
		if j := tc.col.JSONValue(got); !reflect.DeepEqual(j, tc.json) {
			t.Errorf("%v: JSON %#v, want %#v", tc.col, j, tc.json)
		}
		for _, a := range append(tc.answer, tc.col.Argument(got)) {
			read, err := tc.col.Read(a)
			if a == "-" {
				if err == nil {
					t.Errorf("%v: reads %q as %v", tc.col, a, read)
				}
				continue
			}
			if err != nil || !same(read, got) {
				t.Errorf("%v: %#v is read as %#v, %v; want %#v", tc.col, a, read, err, got)
			}
		}
	}
	j := Column{Type: JSON}
	v, err := j.Convert(map[string]any{"b": []any{int64(1), 1.5}, "a": "<x>"})
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{v.(string), `{ "b": [1, 1.5], "a": "<x>" }`} {
		if read, err := j.Read(answer); err != nil || read != v {
			t.Errorf("JSON %s is read as %v, %v; want %v", answer, read, err, v)
		}
	}
	if asJSON(j.JSONValue(v)) != v {
		t.Errorf("JSON value %v", j.JSONValue(v))
	}
}

func TestColumnsRefuse(t *testing.T) {
	for _, tc := range []struct {
		col  Column
		in   any
		want string
	}{
		{Column{Type: Text}, "a\x00b", "refuses"},
		{Column{Type: Text}, "a\xffb", "refuses"},
		{Column{Type: Text, Size: 1}, "äö", "2 characters, more than 1"},
		{Column{Type: SmallInt}, int64(32768), "does not fit into SMALLINT"},
		{Column{Type: Integer}, 1.5, "expected INTEGER, and this is 1.5"},
		{Column{Type: BigInt}, "5", "expected BIGINT, and this is text"},
		{Column{Type: Double}, "5", "expected a number"},
		{Column{Type: Boolean}, int64(1), "expected BOOLEAN, and this is a number"},
		{Column{Type: UUID}, "x", "expected UUID"},
		{Column{Type: Timestamp}, "yesterday", "expected milliseconds"},
		{Column{Type: Decimal}, "1e999999999", "no decimal number"},
		{Column{Type: Decimal}, "1/3", "no decimal number"},
		{Column{Type: Decimal, Precision: 4, Scale: 2}, int64(100), "does not fit into DECIMAL(4,2)"},
		{Column{Type: Bytes}, "?", "illegal base64"},
	} {
		if v, err := tc.col.Convert(tc.in); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v of %v = %v, %v; want %q", tc.col, tc.in, v, err, tc.want)
		}
	}
}

// TestTimesSort checks that times as arguments sort as times do.
func TestTimesSort(t *testing.T) {
	c := Column{Type: Timestamp}
	early, _ := c.Convert(int64(1719331200000))
	late, _ := c.Convert(int64(1719331200500))
	if a, b := c.Argument(early).(string), c.Argument(late).(string); a >= b {
		t.Errorf("%s is not before %s", a, b)
	}
}

func TestTenantSchema(t *testing.T) {
	for _, tc := range []struct {
		app  App
		fork string
		want string
	}{
		{App{Name: "concertapp", Platform: "platform1", Fork: "prod"}, "", "platform1_concertapp_prod"},
		{App{Name: "My -- App!", Platform: "", Fork: "main"}, "Try__2", "my_app_try_2"},
		{App{Name: "ä", Fork: "main"}, "", "main"},
	} {
		if got := tc.app.TenantSchema(tc.fork); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.app, got, tc.want)
		}
	}
}

// TestTogether uses one App in several goroutines; the race detector looks on.
func TestTogether(t *testing.T) {
	app := load(t, "testdata/seats")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			w := &world{app: app, states: map[string]map[string]any{}, tables: tables{}}
			for range 20 {
				w.intent("TAKE_SEAT", `{"row":"A","number":1,"who":"ann"}`)
				w.intent("FREE_SEAT", `{"seat_id":"A-1"}`)
			}
			if len(w.tables["seats"]) != 1 {
				t.Errorf("seats: %v", w.tables["seats"])
			}
		})
	}
	wg.Wait()
}
