package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/node"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lattice.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func find(t *testing.T, l Loaded, key string) node.Setting {
	t.Helper()
	for _, s := range l.Settings {
		if s.Key == key {
			return s
		}
	}
	t.Fatalf("no setting %q", key)
	return node.Setting{}
}

// TestPrecedence checks that flags beat the environment, which beats the file,
// which beats the defaults, and that each value remembers its source.
func TestPrecedence(t *testing.T) {
	path := writeFile(t, "kafka:\n  listen: 127.0.0.1:1\n  advertise: a:1\n  default_partitions: 7\nhttp.listen: 127.0.0.1:2\nlog:\n")
	l, err := Load(Sources{
		File:  path,
		Env:   []string{"LATTICE_KAFKA_ADVERTISE=b:2", "LATTICE_KAFKA_LISTEN=127.0.0.1:3", "HOME=/x", "LATTICE_NODE=http://x"},
		Flags: []Flag{{"--kafka", "kafka.listen", "127.0.0.1:4"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []node.Setting{
		{Key: "kafka.listen", Value: "127.0.0.1:4", Source: "flag --kafka"},
		{Key: "kafka.advertise", Value: "b:2", Source: "env LATTICE_KAFKA_ADVERTISE"},
		{Key: "kafka.default_partitions", Value: "7", Source: "file " + path + ":4"},
		{Key: "http.listen", Value: "127.0.0.1:2", Source: "file " + path + ":5"},
		{Key: "log.durability", Value: "fsync", Source: "default"},
	} {
		got := find(t, l, want.Key)
		got.Doc, got.Default = "", ""
		if got != want {
			t.Errorf("have %+v\nwant %+v", got, want)
		}
	}
	if c := l.Config; c.Kafka.Listen != "127.0.0.1:4" || c.Kafka.DefaultPartitions != 7 || c.HTTP.Listen != "127.0.0.1:2" {
		t.Errorf("the configuration itself: %+v", c)
	}
}

// TestErrors checks that each wrong setting is refused, naming source and way out.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env        []string
		flags      []Flag
		want       string
	}{
		{"misspelt in file", "kafka:\n  lisen: x\n", nil, nil, `lattice.yaml:2: unknown key "kafka.lisen"; did you mean "kafka.listen"?`},
		{"without section", "advertise: x:1\n", nil, nil, `did you mean "kafka.advertise"?`},
		{"unknown section", "redis:\n  listen_on_this: x\n", nil, nil, `unknown key "redis.listen_on_this"; lattice config print lists the keys`},
		{"misspelt in env", "", []string{"LATTICE_KAFKA_LISTN=x"}, nil, `env LATTICE_KAFKA_LISTN: unknown key "LATTICE_KAFKA_LISTN"; did you mean "LATTICE_KAFKA_LISTEN"?`},
		{"misspelt in flag", "", nil, []Flag{{"--set", "log.flushms", "1"}}, `flag --set: unknown key "log.flushms"; did you mean "log.flush_ms"?`},
		{"not a number", "kafka:\n  default_partitions: many\n", nil, nil, `lattice.yaml:2: kafka.default_partitions: "many" is no whole number`},
		{"not a size", "", []string{"LATTICE_LOG_SEGMENT_BYTES=big"}, nil, "size such as 64MiB"},
		{"not a duration", "", []string{"LATTICE_LOG_RETENTION_MS=week"}, nil, "duration such as 36h"},
		{"section is a value", "kafka: 9092\n", nil, nil, `unknown key "kafka"`},
		{"value is a section", "data:\n  dir: x\n", nil, nil, `unknown key "data.dir"; did you mean "data"?`},
		{"no value", "data:\n", nil, nil, "data: has no value"},
		{"broken yaml", "kafka: [\n", nil, nil, "yaml"},
		{"relation", "limits:\n  batch_bytes: 200MiB\n", nil, nil, "lattice.yaml:2: limits.batch_bytes: 209715200 is above limits.request_bytes"},
		{"open to the world", "", nil, []Flag{{"--kafka", "kafka.listen", "0.0.0.0:9092"}}, "flag --kafka: kafka.listen: 0.0.0.0:9092 can be reached from other machines"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := Sources{Env: c.env, Flags: c.flags}
			if c.file != "" {
				src.File = writeFile(t, c.file)
			}
			_, err := Load(src)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("have %v\nwant %q in it", err, c.want)
			}
			if k := lattice.KindOf(err); k != lattice.Invalid {
				t.Errorf("kind %v", k)
			}
		})
	}
}

// TestAllErrorsAtOnce checks that one run names everything that is wrong.
func TestAllErrorsAtOnce(t *testing.T) {
	path := writeFile(t, "kafka:\n  lisen: x\nlog:\n  durability: hope\n")
	_, err := Load(Sources{File: path, Env: []string{"LATTICE_HTTP_LISTEN=nowhere"}})
	for _, want := range []string{"kafka.lisen", `"hope" is none of fsync, interval, os`, `"nowhere" is not host:port`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q missing in: %v", want, err)
		}
	}
}

// TestUnits checks sizes and durations.
func TestUnits(t *testing.T) {
	l, err := Load(Sources{Env: []string{
		"LATTICE_LOG_SEGMENT_BYTES=64MiB", "LATTICE_LOG_RETENTION_MS=36h", "LATTICE_LIMITS_IDLE_MS=1.5s",
		"LATTICE_LIMITS_BATCH_BYTES=1_000_000", "LATTICE_LOG_RETENTION_BYTES=1.5GB", "LATTICE_INSECURE=true",
		"LATTICE_PORT=tcp://10.0.0.1:9092", "LATTICE_SERVICE_HOST=10.0.0.1", "LATTICE_PORT_9092_TCP=x",
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	if c.Log.SegmentBytes != 64<<20 || c.Log.RetentionMs != 36*3600_000 || c.Limits.IdleMs != 1500 ||
		c.Limits.BatchBytes != 1_000_000 || c.Log.RetentionBytes != 1_500_000_000 || !c.Insecure {
		t.Errorf("%+v", c)
	}
}

// TestEveryKeyIsDocumentedAndSettable checks the table that is made from
// node.Config: each key has words for people, its default can be written down
// and read back, and no two keys share an environment name.
func TestEveryKeyIsDocumentedAndSettable(t *testing.T) {
	l, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	var flags []Flag
	for _, s := range l.Settings {
		if s.Doc == "" {
			t.Errorf("%s has no doc tag", s.Key)
		}
		if other, ok := env[envName(s.Key)]; ok {
			t.Errorf("%s and %s share an environment name", s.Key, other)
		}
		env[envName(s.Key)] = s.Key
		flags = append(flags, Flag{"--set", s.Key, s.Value})
	}
	again, err := Load(Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	if again.Config != l.Config {
		t.Errorf("written down and read back:\n%+v\n%+v", again.Config, l.Config)
	}
}

// FuzzFile checks, for any file: no panic, and either an error or a valid
// configuration.
func FuzzFile(f *testing.F) {
	f.Add("kafka:\n  listen: 127.0.0.1:1\n")
	f.Add("a: &a [*a]\n")
	f.Add("? {a: b}\n: c\n")
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Load(Sources{File: path})
		if err == nil {
			err = l.Config.Validate()
		} else {
			return
		}
		if err != nil {
			t.Fatalf("loaded without error, but: %v", err)
		}
	})
}
