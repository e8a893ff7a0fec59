package field

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// request is one line to a driver's stdin. What is done with which fields:
//
//	version
//	create     topic, partitions, replication (0: 1), configs
//	describe   topic: answers partitions
//	list       answers names
//	configs    topic: answers configs
//	alter      topic, configs
//	grow       topic, partitions
//	trim       topic, offset: deletes the records of partition 0 before it
//	delete     topic
//	produce    topic, codec, records: answers them, with where they are
//	consume    topic: answers all records up to the ends at the start
//	seek       topic, time: the same from the first record at or after it
//	beyond     topic: reads behind the end, which must fail
//	groups     answers names
//	members    group: answers how many
//	committed  group, topic: answers offsets by partition
//	forget     group: deletes it
//	member     topic, group, balancer: is a member until stdin ends, and answers
//	           with events (see member)
type request struct {
	Do          string            `json:"do"`
	Bootstrap   string            `json:"bootstrap"`
	Topic       string            `json:"topic,omitempty"`
	Partitions  int               `json:"partitions"`
	Replication int               `json:"replication,omitempty"`
	Configs     map[string]string `json:"configs,omitempty"`
	Codec       string            `json:"codec,omitempty"`
	Records     []record          `json:"records,omitempty"`
	Time        int64             `json:"time,omitempty"` // ms since 1970
	Offset      int64             `json:"offset,omitempty"`
	Group       string            `json:"group,omitempty"`
	Balancer    string            `json:"balancer,omitempty"`
}

// record is one record, in and out. Null keys, values and header values are null.
type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"` // ms since 1970; 0: the client's choice
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// answer is a driver's line to a request.
type answer struct {
	Version     string            `json:"version"`
	Partitions  int               `json:"partitions"`
	Names       []string          `json:"names"`
	Configs     map[string]string `json:"configs"`
	Records     []record          `json:"records"`
	Members     int               `json:"members"`
	Offsets     map[int32]int64   `json:"offsets"`
	Unsupported bool              `json:"unsupported"`
	Error       *refusal          `json:"error"`
}

// refusal is an error: its code in Kafka's protocol, or another number where
// the client does not say one.
type refusal struct {
	Code int    `json:"code"`
	Text string `json:"text"`
}

func (r *refusal) Error() string { return fmt.Sprintf("error %d: %s", r.Code, r.Text) }

// limit bounds everything that a case waits for. Nothing takes this long on an
// idle machine.
const limit = 90 * time.Second

// process is a running driver.
type process struct {
	label  string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of stdout; closed at its end
	exited chan struct{}
	err    error // of the process; set before exited closes

	mu   sync.Mutex
	said []string // its last lines on stderr
}

func startProcess(t *testing.T, label string, args []string) *process {
	t.Helper()
	p := &process{label: label, cmd: exec.Command(args[0], args[1:]...), lines: make(chan string, 1000), exited: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err0 := p.cmd.StdinPipe()
	stdout, err1 := p.cmd.StdoutPipe()
	stderr, err2 := p.cmd.StderrPipe()
	for _, err := range []error{err0, err1, err2, p.cmd.Start()} {
		if err != nil {
			t.Fatalf("start the driver of %s: %v", label, err)
		}
	}
	p.stdin = stdin
	var readers sync.WaitGroup
	readers.Go(func() {
		defer close(p.lines)
		in := bufio.NewReader(stdout)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			p.lines <- line
		}
	})
	readers.Go(func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.mu.Lock()
			p.said = append(p.said[max(0, len(p.said)-20):], s.Text())
			p.mu.Unlock()
		}
	})
	go func() {
		readers.Wait() // Wait closes the pipes
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // gone already is as good
	for range p.lines {
	}
	<-p.exited
}

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.said, "\n")
}

func (p *process) send(t *testing.T, r request) {
	t.Helper()
	b, err := json.Marshal(r)
	if err == nil {
		_, err = p.stdin.Write(append(b, '\n'))
	}
	if err != nil {
		t.Fatalf("%s: %s: %v; it says: %s", p.label, r.Do, err, p.stderr())
	}
}

// ask makes the driver do something that may be refused.
func (p *process) ask(t *testing.T, r request) answer {
	t.Helper()
	p.send(t, r)
	select {
	case line, ok := <-p.lines:
		if !ok {
			t.Fatalf("%s: %s %s: the driver ended; it says: %s", p.label, r.Do, r.Topic, p.stderr())
		}
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%s: %s %s: answered %.300q: %v", p.label, r.Do, r.Topic, line, err)
		}
		if a.Unsupported {
			t.Fatalf("%s: does not know how to %s", p.label, r.Do)
		}
		return a
	case <-time.After(limit):
		t.Fatalf("%s: %s %s: no answer in %s; it says: %s", p.label, r.Do, r.Topic, limit, p.stderr())
	}
	panic("unreachable")
}

// must is ask for what must not be refused.
func (p *process) must(t *testing.T, r request) answer {
	t.Helper()
	a := p.ask(t, r)
	if a.Error != nil {
		t.Fatalf("%s: %s %s %s: %v", p.label, r.Do, r.Topic, r.Group, a.Error)
	}
	return a
}
