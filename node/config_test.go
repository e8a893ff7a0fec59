package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/engine/group"
)

// TestValidate checks that each wrong field, and each contradiction between
// two, is refused under its own key, and the defaults are not.
func TestValidate(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		key    string // "" is valid
	}{
		"no directory":          {func(c *Config) { c.Data = "" }, "data"},
		"all off":               {func(c *Config) { c.Kafka.Listen, c.HTTP.Listen = "", "" }, ""},
		"no port":               {func(c *Config) { c.Kafka.Listen = "127.0.0.1" }, "kafka.listen"},
		"port in words":         {func(c *Config) { c.HTTP.Listen = "127.0.0.1:http" }, "http.listen"},
		"port too large":        {func(c *Config) { c.HTTP.Listen = "127.0.0.1:70000" }, "http.listen"},
		"same address":          {func(c *Config) { c.HTTP.Listen = c.Kafka.Listen }, "http.listen"},
		"two free ports":        {func(c *Config) { c.HTTP.Listen, c.Kafka.Listen = "127.0.0.1:0", "127.0.0.1:0" }, ""},
		"ipv6 loopback":         {func(c *Config) { c.Kafka.Listen = "[::1]:9092" }, ""},
		"localhost":             {func(c *Config) { c.Kafka.Listen = "localhost:9092" }, ""},
		"kafka open":            {func(c *Config) { c.Kafka.Listen = "0.0.0.0:9092" }, "kafka.listen"},
		"kafka open, no host":   {func(c *Config) { c.Kafka.Listen = ":9092" }, "kafka.listen"},
		"kafka open, insecure":  {func(c *Config) { c.Kafka.Listen, c.Insecure = "0.0.0.0:9092", true }, ""},
		"kafka open, TLS":       {func(c *Config) { c.Kafka.Listen, c.TLS = "0.0.0.0:9092", TLS{"c", "k"} }, ""},
		"kafka open, tokens":    {func(c *Config) { c.Kafka.Listen, c.HTTP.TokenFile = "10.0.0.1:9092", "t" }, "kafka.listen"},
		"http open":             {func(c *Config) { c.HTTP.Listen = "10.0.0.1:80" }, "http.listen"},
		"http open, tokens":     {func(c *Config) { c.HTTP.Listen, c.HTTP.TokenFile = "10.0.0.1:80", "t" }, ""},
		"half a certificate":    {func(c *Config) { c.TLS.Cert = "c" }, "tls.cert"},
		"advertise nothing":     {func(c *Config) { c.Kafka.Listen, c.Kafka.Advertise = "", "a:1" }, "kafka.advertise"},
		"advertise port 0":      {func(c *Config) { c.Kafka.Advertise = "a:0" }, "kafka.advertise"},
		"advertise everything":  {func(c *Config) { c.Kafka.Advertise = "0.0.0.0:1" }, "kafka.advertise"},
		"advertise no host":     {func(c *Config) { c.Kafka.Advertise = ":1" }, "kafka.advertise"},
		"advertise":             {func(c *Config) { c.Kafka.Advertise = "broker.example:9092" }, ""},
		"durability":            {func(c *Config) { c.Log.Durability = "always" }, "log.durability"},
		"auto create":           {func(c *Config) { c.Kafka.AutoCreate = "yes" }, "kafka.auto_create"},
		"replication":           {func(c *Config) { c.Kafka.Replication = "3" }, "kafka.replication"},
		"node id":               {func(c *Config) { c.Kafka.NodeID = -1 }, "kafka.node_id"},
		"partitions":            {func(c *Config) { c.Kafka.DefaultPartitions = 0 }, "kafka.default_partitions"},
		"log level":             {func(c *Config) { c.Logs.Level = "loud" }, "logs.level"},
		"log format":            {func(c *Config) { c.Logs.Format = "xml" }, "logs.format"},
		"for ever":              {func(c *Config) { c.Log.RetentionMs, c.Log.RetentionBytes = -1, -1 }, ""},
		"less than for ever":    {func(c *Config) { c.Log.RetentionMs = -2 }, "log.retention_ms"},
		"no rebalance delay":    {func(c *Config) { c.Groups.RebalanceDelayMs = 0 }, ""},
		"sessions crossed":      {func(c *Config) { c.Groups.MinSessionMs, c.Groups.MaxSessionMs = 2000, 1000 }, "groups.min_session_ms"},
		"batch above request":   {func(c *Config) { c.Limits.BatchBytes, c.Log.SegmentBytes = 200<<20, 1<<30 }, "limits.batch_bytes"},
		"batch above segment":   {func(c *Config) { c.Limits.BatchBytes, c.Log.SegmentBytes = 2<<20, 1<<20 }, "limits.batch_bytes"},
		"request above buffers": {func(c *Config) { c.Limits.BufferedBytes = 50 << 20 }, "limits.request_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Default()
			c.change(&cfg)
			err := cfg.Validate()
			var f *FieldError
			switch {
			case c.key == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case c.key == "":
			case !errors.As(err, &f) || f.Key != c.key || lattice.KindOf(err) != lattice.Invalid:
				t.Fatalf("have %v, want an error of %s", err, c.key)
			case strings.Count(err.Error(), "\n") > 0:
				t.Fatalf("more than one error: %v", err)
			}
		})
	}
}

// TestEveryNumberHasARange checks that no numeric field takes any value.
func TestEveryNumberHasARange(t *testing.T) {
	cfg := Default()
	cfg.Kafka.DefaultPartitions = -7
	cfg.Log = Log{Durability: "fsync", FlushMs: -7, SegmentBytes: -7, RetentionMs: -7, RetentionBytes: -7, RetentionCheckMs: -7, CompactionCheckMs: -7}
	cfg.Groups = Groups{-7, -7, -7, -7, "home"}
	cfg.Limits = Limits{-7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	if have, want := strings.Count(err.Error(), "-7 is not between"), 1+6+4+14; have != want {
		t.Errorf("%d of %d numbers are checked:\n%v", have, want, err)
	}
}

// TestGroupSettings: what is not set is the coordinator's own default, and what is
// set reaches it and is shown.
func TestGroupSettings(t *testing.T) {
	if have, want := groupConfig(Default().Groups), group.DefaultConfig(); have != want {
		t.Errorf("defaults: %+v, want %+v", have, want)
	}
	cfg := Default()
	cfg.Groups = Groups{RebalanceDelayMs: 0, MinSessionMs: 100, MaxSessionMs: 200, OffsetsRetentionMs: 120_000, Availability: "home"}
	c := storeConfig(cfg, identity.Key{}, lattice.StoreID{}, nil)
	if g := c.Group; g.InitialRebalanceDelay != 0 || g.MinSession != 100*time.Millisecond || g.MaxSession != 200*time.Millisecond || g.OffsetsRetention != 2*time.Minute {
		t.Errorf("%+v", g)
	}
	shown := map[string]string{
		"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100",
		"group.max.session.timeout.ms": "200", "offsets.retention.minutes": "2",
	}
	for _, e := range c.NodeConfig {
		if want, ok := shown[e.Name]; ok && (e.Value != want || e.Source != "node") {
			t.Errorf("%s is shown as %s from %s, want %s", e.Name, e.Value, e.Source, want)
		}
		delete(shown, e.Name)
	}
	if len(shown) > 0 {
		t.Errorf("not shown: %v", shown)
	}
}

func TestAutoCreate(t *testing.T) {
	for _, c := range []struct {
		listen, setting string
		want            bool
	}{
		{"127.0.0.1:9092", "auto", true},
		{"[::1]:9092", "auto", true},
		{"0.0.0.0:9092", "auto", false},
		{"0.0.0.0:9092", "true", true},
		{"127.0.0.1:9092", "false", false},
		{"", "auto", false},
	} {
		cfg := Default()
		cfg.Kafka.Listen, cfg.Kafka.AutoCreate = c.listen, c.setting
		if got := cfg.AutoCreate(); got != c.want {
			t.Errorf("%q with %s: %v", c.listen, c.setting, got)
		}
	}
}
