// Package realkafka runs Apache Kafka from Maven's jars: one KRaft node, broker and
// controller, with a plain listener and one with TLS and SASL, for tests of what speaks
// to somebody else's cluster. It promises that no process and no file outlives the test.
//
// The jars' class path is a file that scripts/deps.sh writes; a test that cannot have
// them fails, and says how they are had.
package realkafka

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// startWithin bounds a start, recovery included, on a busy machine.
const startWithin = 3 * time.Minute

// User and Password are whom the secure listener knows, by PLAIN and by SCRAM-SHA-512.
const (
	User     = "app"
	Password = "correct horse"
)

// Broker is one Kafka. Its methods belong to the test's goroutine.
type Broker struct {
	// Address is the plain listener's, Secure the one's with TLS and SASL. They stay over
	// restarts.
	Address, Secure string
	// CA is a file with the authority (PEM) that the secure listener's certificate is from.
	CA string

	dir, classes string
	process      *realnode.Process
}

// Start makes an empty cluster and starts its broker.
func Start(t testing.TB) *Broker {
	t.Helper()
	b := &Broker{Address: realnode.FreeAddress(t), Secure: realnode.FreeAddress(t), classes: classPath(t)}
	dir, err := os.MkdirTemp("", "kafka")
	if err != nil {
		t.Fatal(err)
	}
	b.dir, b.CA = dir, filepath.Join(dir, "ca.pem")
	t.Cleanup(func() { os.RemoveAll(dir) })
	b.configure(t)
	out, err := exec.Command("java", b.java("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", b.config(),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%q]", User, Password))...).CombinedOutput()
	if err != nil {
		t.Fatalf("format Kafka's storage: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if b.process != nil {
			b.process.Kill()
		}
	})
	b.Start(t)
	return b
}

func (b *Broker) config() string { return filepath.Join(b.dir, "server.properties") }

// java returns the arguments for a class: a small heap and a quick start, since several run
// beside a test.
func (b *Broker) java(class string, args ...string) []string {
	return append([]string{"-Xms64M", "-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", b.classes, class}, args...)
}

func (b *Broker) configure(t testing.TB) {
	t.Helper()
	chain, key := certificate(t, b.CA)
	jaas := "org.apache.kafka.common.security."
	lines := []string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.listener.names=CONTROLLER",
		"listeners=PLAINTEXT://" + b.Address + ",SECURE://" + b.Secure + ",CONTROLLER://" + realnode.FreeAddress(t),
		"advertised.listeners=PLAINTEXT://" + b.Address + ",SECURE://" + b.Secure,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
		"log.dirs=" + filepath.Join(b.dir, "data"),
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=3",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=3",
		"group.initial.rebalance.delay.ms=0",
		"auto.create.topics.enable=false",
		// The controller holds a killed broker's place for so long.
		"broker.session.timeout.ms=2000",
		"broker.heartbeat.interval.ms=500",
		"ssl.keystore.type=PEM",
		"ssl.keystore.certificate.chain=" + chain,
		"ssl.keystore.key=" + key,
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
		fmt.Sprintf(`listener.name.secure.plain.sasl.jaas.config=%splain.PlainLoginModule required user_%s="%s";`, jaas, User, Password),
		"listener.name.secure.scram-sha-512.sasl.jaas.config=" + jaas + "scram.ScramLoginModule required;",
	}
	_, port, _ := net.SplitHostPort(lines[3][strings.LastIndex(lines[3], "//")+2:])
	lines = append(lines, "controller.quorum.voters=1@127.0.0.1:"+port)
	if err := os.WriteFile(b.config(), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Start starts the broker again after Kill and waits until it takes connections and has said
// that it serves.
func (b *Broker) Start(t testing.TB) {
	t.Helper()
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("java", b.java("kafka.Kafka", b.config())...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, log, log
	p, err := realnode.Spawn(cmd)
	if err != nil {
		t.Fatalf("start Kafka: %v; it needs Java: make deps", err)
	}
	b.process = p
	for end := time.Now().Add(startWithin); !b.serves(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.Exited():
			t.Fatalf("Kafka ended (%v); its last lines:\n%s", p.Err(), b.Log())
		default:
		}
		if time.Now().After(end) {
			p.Kill()
			t.Fatalf("Kafka does not serve after %s; its last lines:\n%s", startWithin, b.Log())
		}
	}
}

// serves reports whether both listeners answer. A broker binds them when it has recovered its logs.
func (b *Broker) serves() bool {
	for _, address := range []string{b.Address, b.Secure} {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		c.Close()
	}
	return true
}

// Kill ends the broker as kill -9 does.
func (b *Broker) Kill() { b.process.Kill() }

// Log returns the last lines that the broker wrote.
func (b *Broker) Log() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8<<10):])
}

// classPath reads what Maven said.
func classPath(t testing.TB) string {
	t.Helper()
	file := filepath.Join(realnode.Root(t), "test/bench/kafka/target/classpath")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no Apache Kafka to test with (%v): fetch its jars with make deps, which asks Maven", err)
	}
	classes := strings.TrimSpace(string(text))
	for jar := range strings.SplitSeq(classes, ":") {
		if _, err := os.Stat(jar); err != nil {
			t.Fatalf("Apache Kafka is not all there (%v): remove %s and run make deps", err, file)
		}
	}
	return classes
}
