package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lattice-log/lattice/app/bench/compare"
)

// lattice runs the command as a user would.
func (e *env) lattice(class compare.Class, durability string) compare.Peer {
	return compare.Peer{
		Name: compare.Lattice, Class: class, How: "topic config lattice.durability=" + durability + ", hashed and signed",
		Start: func(ctx context.Context) (compare.Server, error) {
			return e.kafkaProtocol(ctx, e.version(e.bin("lattice"), "version"), func(dir string, port int) *exec.Cmd {
				return exec.Command(e.bin("lattice"), "up", "--data", filepath.Join(dir, "data"), "--kafka", address(port), "--redis", "", "--http", "")
			}, map[string]string{"lattice.durability": durability})
		},
	}
}

// kfake runs franz-go's Kafka: Go and one process, as ours, but it neither
// hashes nor signs.
func (e *env) kfake(class compare.Class, how string, args ...string) compare.Peer {
	return compare.Peer{
		Name: compare.Kfake, Class: class, How: how,
		Start: func(ctx context.Context) (compare.Server, error) {
			s, err := e.kafkaProtocol(ctx, e.module("github.com/twmb/franz-go/pkg/kfake"), func(dir string, port int) *exec.Cmd {
				with := []string{"-port", fmt.Sprint(port)}
				if class != compare.Discards {
					with = append(with, "-dir", filepath.Join(dir, "data"))
				}
				return exec.Command(e.bin("kfake"), append(with, args...)...)
			}, nil)
			if err != nil {
				return nil, err
			}
			s.discards = class == compare.Discards
			return s, nil
		},
	}
}

// apacheKafka runs one broker that is its own controller, with the heap and the
// collector that Kafka's start script gives it.
func (e *env) apacheKafka(class compare.Class, how string, configs map[string]string) compare.Peer {
	return compare.Peer{
		Name: compare.Kafka, Class: class, How: how,
		Start: func(ctx context.Context) (compare.Server, error) {
			cp, err := os.ReadFile(e.classpath)
			if err != nil {
				return nil, err
			}
			classes := strings.TrimSpace(string(cp))
			var failed error
			s, err := e.kafkaProtocol(ctx, kafkaVersion(classes), func(dir string, port int) *exec.Cmd {
				props := filepath.Join(dir, "server.properties")
				if failed = writeKafkaConfig(props, dir, port); failed == nil {
					failed = run(ctx, "java", "-cp", classes, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", props)
				}
				return exec.Command("java", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
					"-XX:InitiatingHeapOccupancyPercent=35", "-cp", classes, "kafka.Kafka", props)
			}, configs)
			if failed != nil {
				return nil, failed
			}
			return s, err
		},
	}
}

func writeKafkaConfig(name, dir string, port int) error {
	controller, err := freePort()
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(strings.Join([]string{
		"process.roles=broker,controller",
		"node.id=1",
		fmt.Sprintf("controller.quorum.voters=1@%s", address(controller)),
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s", address(port), address(controller)),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://%s", address(port)),
		"controller.listener.names=CONTROLLER",
		"log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
	}, "\n")+"\n"), 0o600)
}

// kafkaVersion reads the version off the broker's jar.
func kafkaVersion(classes string) string {
	for jar := range strings.SplitSeq(classes, ":") {
		if v, ok := strings.CutPrefix(filepath.Base(jar), "kafka_2.13-"); ok {
			return strings.TrimSuffix(v, ".jar")
		}
	}
	return "unknown"
}

// kafkaProtocol starts a server and waits until it answers.
func (e *env) kafkaProtocol(ctx context.Context, version string, command func(dir string, port int) *exec.Cmd, configs map[string]string) (*kafkaServer, error) {
	dir, err := os.MkdirTemp(e.dir, "peer-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p, err := launch(dir, command(dir, port))
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s := &kafkaServer{process: p, version: version, addr: address(port), configs: map[string]*string{}, kcat: "kcat"}
	for k, v := range configs {
		s.configs[k] = &v
	}
	if err := s.connect(ctx); err != nil {
		_ = s.Stop()
		return nil, err
	}
	return s, nil
}
