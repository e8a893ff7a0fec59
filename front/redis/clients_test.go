package redis

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/front/redis/resp"
	"github.com/lattice-log/lattice/internal/testkit/realredis"
	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// Scripts with several clients, in testdata/clients, run against a real Redis and
// against this server; the transcripts must be the same. A line is one of
//
//	a GET k         client a sends a command and reads its reply
//	a! BLPOP k 0    a sends a command
//	a?              a reads a reply or message
//	a closed        a reads until the connection closes
//	blocked 2       wait until the server says that so many clients are blocked
//	subscribed c 2  wait until a channel has so many subscribers
//
// $a stands for the id of client a.

// script runs one file against one server and returns the transcript.
type script struct {
	t       *testing.T
	addr    string
	clients map[string]*respclient.Client
	ids     map[string]string
	out     strings.Builder
}

func (s *script) client(name string) *respclient.Client {
	if c := s.clients[name]; c != nil {
		return c
	}
	c, err := respclient.Dial(s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.clients[name] = c
	v, err := c.Do("CLIENT", "ID")
	if err != nil {
		s.t.Fatal(err)
	}
	s.ids[name] = v.Str
	return c
}

// words splits a command and puts in the ids of clients.
func (s *script) words(line string) []string {
	split, ok := resp.Split(nil, []byte(line))
	if !ok {
		s.t.Fatalf("quotes: %s", line)
	}
	out := make([]string, len(split))
	for i, w := range split {
		out[i] = string(w)
		if id, ok := strings.CutPrefix(out[i], "$"); ok && s.ids[id] != "" {
			out[i] = s.ids[id]
		}
	}
	return out
}

// until asks on a connection of its own until the answer is as wanted.
func (s *script) until(line string, ok func(c *respclient.Client) bool) {
	c, err := respclient.Dial(s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	for deadline := time.Now().Add(time.Minute); !ok(c); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("never: %s\n%s", line, s.out.String())
		}
	}
}

func (s *script) line(line string) {
	first, rest, _ := strings.Cut(line, " ")
	switch {
	case first == "blocked":
		s.until(line, func(c *respclient.Client) bool {
			v, err := c.Do("INFO", "clients")
			return err == nil && strings.Contains(v.Str, "blocked_clients:"+rest+"\r")
		})
		return
	case first == "subscribed":
		channel, n, _ := strings.Cut(rest, " ")
		s.until(line, func(c *respclient.Client) bool {
			v, err := c.Do("PUBSUB", "NUMSUB", channel)
			return err == nil && len(v.Elems) == 2 && v.Elems[1].Str == n
		})
		return
	}
	name := strings.TrimRight(first, "!?")
	c := s.client(name)
	if rest == "closed" {
		for {
			v, err := c.Receive()
			if err == nil {
				s.reply(name, v, nil)
				continue
			}
			if e, ok := err.(net.Error); ok && e.Timeout() {
				s.t.Fatalf("%s is still open", name)
			}
			fmt.Fprintf(&s.out, "%s closed\n", name)
			return
		}
	}
	if !strings.HasSuffix(first, "?") {
		if err := c.Send(s.words(rest)...); err != nil {
			s.t.Fatal(err)
		}
	}
	if !strings.HasSuffix(first, "!") {
		v, err := c.Receive()
		if strings.HasPrefix(rest, "HELLO ") && v.Kind != '-' {
			v = respclient.Value{Kind: v.Kind} // it holds the client's id
		}
		s.reply(name, v, err)
	}
}

func (s *script) reply(name string, v respclient.Value, err error) {
	if err != nil {
		fmt.Fprintf(&s.out, "%s: %v\n", name, err)
		return
	}
	fmt.Fprintf(&s.out, "%s: %s\n", name, v)
}

func (s *script) run(file string) string {
	f, err := os.Open(file)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	defer func() {
		for _, c := range s.clients {
			c.Close()
		}
	}()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fmt.Fprintf(&s.out, "> %s\n", line)
		s.line(line)
	}
	return s.out.String()
}

func TestSameAsRedisClients(t *testing.T) {
	files, err := filepath.Glob("testdata/clients/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			transcript := func(addr string) string {
				s := &script{t: t, addr: addr, clients: map[string]*respclient.Client{}, ids: map[string]string{}}
				return s.run(file)
			}
			want := strings.Split(transcript(realredis.Start(t)), "\n")
			got := strings.Split(transcript(newEngineFixture(t, Config{}).addr), "\n")
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					from := max(0, i-6)
					t.Fatalf("line %d\n redis: %s\n ours:  %s\nafter:\n%s", i+1, want[i], strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""),
						strings.Join(want[from:i], "\n"))
				}
			}
		})
	}
}
