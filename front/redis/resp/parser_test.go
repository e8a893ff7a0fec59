package resp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var testLimits = Limits{Args: 1 << 20, Bulk: 1 << 20}

// parse feeds in to a Parser in pieces of at most step bytes, and returns the
// commands and the error.
func parse(t testing.TB, in []byte, step int, l Limits) (cmds [][]string, err error) {
	p := Parser{Limits: l}
	for {
		for {
			args, err := p.Next(nil)
			if err != nil {
				return cmds, err
			}
			if len(args) == 0 {
				break
			}
			var c []string
			for _, a := range args {
				c = append(c, string(a))
			}
			cmds = append(cmds, c)
		}
		if len(in) == 0 {
			return cmds, nil
		}
		if len(p.Free()) == 0 {
			before := p.Size()
			p.Grow(max(16, p.Want()))
			if p.Size() <= before && before > 0 {
				t.Fatalf("Grow(%d) left %d bytes", p.Want(), p.Size())
			}
		}
		n := copy(p.Free()[:min(step, len(p.Free()))], in)
		p.Filled(n)
		in = in[n:]
	}
}

func TestParserTakesWhatRedisTakes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want [][]string
	}{
		{"PING\r\n", [][]string{{"PING"}}},
		{"PING\n", [][]string{{"PING"}}},
		{"\r\n\n  \r\nPING\r\n", [][]string{{"PING"}}},
		{"  set  a\tb \r\n", [][]string{{"set", "a", "b"}}},
		{`set "a b" 'c "d' "\x41\n\"\q"` + "\n", [][]string{{"set", "a b", `c "d`, "A\n\"q"}}},
		{`get ''` + "\n", [][]string{{"get", ""}}},
		{`get 'a\'b' '\n'` + "\n", [][]string{{"get", "a'b", `\n`}}},
		{`get pre"fix" x` + "\n", [][]string{{"get", "prefix", "x"}}},
		{`get "\xzz"` + "\n", [][]string{{"get", "xzz"}}},
		{"a\x00b\n", [][]string{{"a", "b"}}},
		{"*1\r\n$4\r\nPING\r\n", [][]string{{"PING"}}},
		{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$1\r\nx\r\n", [][]string{{"GET", ""}, {"x"}}},
		{"*0\r\n*-1\r\n*-5\r\nPING\r\n", [][]string{{"PING"}}},
		{"*1\r\n$4\r\nPI\r\n\r\n", [][]string{{"PI\r\n"}}},
		{"*1\r\n$1\r\naXX", [][]string{{"a"}}}, // the end of a string is not looked at
		{"*1\r\n$4\r\nPIN", nil},
		{"*2\r\n$4\r\nPING\r\n", nil},
		{"*", nil},
		{"", nil},
	} {
		for _, step := range []int{1, 3, 1 << 20} {
			got, err := parse(t, []byte(c.in), step, testLimits)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%q by %d: %q, %v; want %q", c.in, step, got, err, c.want)
			}
		}
	}
}

func TestParserRefusesInRedisWords(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	for _, c := range []struct{ in, want string }{
		{"*3000000000\r\n", "invalid multibulk length"},
		{"*1048577\r\n", "invalid multibulk length"},
		{"*a\r\n", "invalid multibulk length"},
		{"*\r\n", "invalid multibulk length"},
		{"*01\r\n", "invalid multibulk length"},
		{"*1 \r\n", "invalid multibulk length"},
		{"*1\r\n$-10\r\n", "invalid bulk length"},
		{"*1\r\n$2000000000\r\n", "invalid bulk length"},
		{"*1\r\n$9223372036854775808\r\n", "invalid bulk length"},
		{"*1\r\n$blabla\r\n", "invalid bulk length"},
		{"*1\r\n$\r\n", "invalid bulk length"},
		{"*1\r\nfooz\r\n", "expected '$', got 'f'"},
		{"*1\r\n\x00\r\n", "expected '$', got '\x00'"},
		{`set "a` + "\r\n", "unbalanced quotes in request"},
		{`set "a"b` + "\r\n", "unbalanced quotes in request"},
		{`set 'a` + "\r\n", "unbalanced quotes in request"},
		{long, "too big inline request"},
		{"*" + long, "too big mbulk count string"},
		{"*1\r\n$" + long, "too big bulk count string"},
	} {
		for _, step := range []int{1 << 10, 1 << 20} {
			got, err := parse(t, []byte("PING\r\n"+c.in), step, testLimits)
			if err == nil || err.Error() != "Protocol error: "+c.want {
				t.Errorf("%.40q: error %v, want %q", c.in, err, c.want)
			}
			if fmt.Sprint(got) != "[[PING]]" {
				t.Errorf("%.40q: what came before is %q", c.in, got)
			}
		}
	}
}

func TestSizeFollowsWhatCame(t *testing.T) {
	p := Parser{Limits: Limits{Args: 1 << 20, Bulk: 512 << 20}}
	sent := 0
	send := func(b string) {
		for len(b) > 0 {
			if len(p.Free()) == 0 {
				p.Grow(max(1024, p.Want()))
			}
			n := copy(p.Free(), b)
			p.Filled(n)
			b, sent = b[n:], sent+n
			if args, err := p.Next(nil); len(args) > 0 || err != nil {
				t.Fatalf("after %d bytes: %q, %v", sent, args, err)
			}
		}
	}
	send("*1000000\r\n$536870912\r\n")
	for range 100 {
		send(strings.Repeat("x", 997))
		if p.Size() > 2*sent+1024 {
			t.Fatalf("%d bytes held for %d that came", p.Size(), sent)
		}
	}
}

func TestShrinkKeepsWhatIsHeld(t *testing.T) {
	var p Parser
	p.Limits = testLimits
	p.Grow(1 << 16)
	p.Filled(copy(p.Free(), "*1\r\n$4\r\nPI"))
	if args, err := p.Next(nil); len(args) > 0 || err != nil {
		t.Fatalf("%q, %v", args, err)
	}
	p.Shrink(512)
	p.Filled(copy(p.Free(), "NG\r\n"))
	args, err := p.Next(nil)
	if err != nil || len(args) != 1 || string(args[0]) != "PING" {
		t.Fatalf("%q, %v", args, err)
	}
	p.Free()
	p.Shrink(512)
	if p.Size() != 512 {
		t.Fatalf("%d bytes held for nothing", p.Size())
	}
}

// TestPiecesMakeTheSameCommands: however the bytes of a pipeline are cut, the
// same commands come out, each as it was sent.
func TestPiecesMakeTheSameCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 6)).Draw(t, "commands")
		var in []byte
		for _, c := range want {
			in = AppendCommand(in, c...)
		}
		p := Parser{Limits: testLimits}
		var got int
		for len(in) > 0 {
			if len(p.Free()) == 0 {
				p.Grow(max(8, p.Want()))
			}
			n := copy(p.Free()[:min(len(p.Free()), rapid.IntRange(1, 50).Draw(t, "n"))], in)
			p.Filled(n)
			in = in[n:]
			for {
				args, err := p.Next(nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(args) == 0 {
					break
				}
				if got == len(want) || !equal(args, want[got]) {
					t.Fatalf("command %d is %q", got, args)
				}
				got++
			}
		}
		if got != len(want) {
			t.Fatalf("%d of %d commands came out", got, len(want))
		}
	})
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// FuzzParser checks, for any input: no panic; cutting it otherwise changes
// nothing; what parses, encoded again, parses to the same; memory follows input.
func FuzzParser(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\nPING\r\n"), 3)
	f.Add([]byte("*1\r\n$-1\r\n"), 1)
	f.Add([]byte(`set "a\x00" 'b'`+"\n*0\r\n\r\n"), 2)
	f.Add([]byte("*1000000\r\n$100000\r\nabc"), 7)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		if step < 1 {
			step = 1
		}
		cmds, err := parse(t, in, len(in)+1, testLimits)
		again, errAgain := parse(t, in, step, testLimits)
		if fmt.Sprint(cmds, err) != fmt.Sprint(again, errAgain) {
			t.Fatalf("whole: %q %v\nby %d: %q %v", cmds, err, step, again, errAgain)
		}
		var canonical []byte
		for _, c := range cmds {
			args := make([][]byte, len(c))
			for i := range c {
				args[i] = []byte(c[i])
			}
			canonical = AppendCommand(canonical, args...)
		}
		twice, err := parse(t, canonical, len(canonical)+1, Limits{Args: 1 << 20, Bulk: len(in) + 1})
		if err != nil || fmt.Sprintf("%q", twice) != fmt.Sprintf("%q", cmds) {
			t.Fatalf("encoded again: %q %v, want %q", twice, err, cmds)
		}
	})
}

func BenchmarkParser(b *testing.B) {
	for _, pipeline := range []int{1, 16} {
		b.Run(fmt.Sprintf("SET/P%d", pipeline), func(b *testing.B) {
			one := AppendCommand(nil, []byte("SET"), []byte("key:000000000123"), []byte("xxx"))
			in := bytes.Repeat(one, pipeline)
			p := Parser{Limits: testLimits}
			p.Grow(4096)
			var args [][]byte
			b.ReportAllocs()
			b.SetBytes(int64(len(one)))
			for i := 0; i < b.N; i += pipeline {
				p.Filled(copy(p.Free(), in))
				for range pipeline {
					var err error
					if args, err = p.Next(args[:0]); err != nil || len(args) != 3 {
						b.Fatal(len(args), err)
					}
				}
			}
		})
	}
}
