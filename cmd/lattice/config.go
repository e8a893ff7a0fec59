package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lattice-log/lattice/internal/cli"
	"github.com/lattice-log/lattice/node"
	"github.com/lattice-log/lattice/node/settings"
)

// configFlags are the flags that set a node's configuration.
type configFlags struct {
	file string
	set  []string
}

// flagKeys maps the flags with names of their own to configuration keys.
var flagKeys = []struct{ flag, key, usage string }{
	{"kafka", "kafka.listen", "HOST:PORT for Kafka clients; port 0 picks one, empty: off (default 127.0.0.1:9092)"},
	{"redis", "redis.listen", "HOST:PORT for Redis clients; port 0 picks one, empty: off (default 127.0.0.1:6379)"},
	{"http", "http.listen", "HOST:PORT for the API and metrics; port 0 picks one, empty: off (default 127.0.0.1:8080)"},
	{"mesh", "mesh.listen", "HOST:PORT or multiaddr for other nodes of its stores; port 0 picks one and keeps it, empty: off (default 127.0.0.1:0)"},
	{"advertise", "kafka.advertise", "HOST:PORT that Kafka clients are told to use (default: the listener's)"},
	{"log-level", "logs.level", "debug, info, warn or error (default info)"},
	{"log-format", "logs.format", "text, json or auto (default auto: text on a terminal)"},
}

func (f *configFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.file, "config", "", "configuration file, YAML (env LATTICE_CONFIG)")
	fl.StringArrayVar(&f.set, "set", nil, "KEY=VALUE for any configuration key; repeatable")
	fl.Bool("insecure", false, "allow other addresses than loopback without TLS or authentication")
	fl.Bool("mdns", false, "announce the node on the local network, and look for members there")
	for _, k := range flagKeys {
		fl.String(k.flag, "", k.usage)
	}
}

// load reads the configuration from all sources.
func (a *app) load(cmd *cobra.Command, f configFlags) (settings.Loaded, error) {
	src := settings.Sources{File: f.file, Env: a.environ}
	if src.File == "" {
		src.File = a.env("LATTICE_CONFIG")
	}
	for _, kv := range f.set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return settings.Loaded{}, cli.Usagef("--set %q: want KEY=VALUE", kv)
		}
		src.Flags = append(src.Flags, settings.Flag{Name: "--set", Key: key, Value: value})
	}
	for _, k := range flagKeys {
		if fl := cmd.Flags().Lookup(k.flag); fl != nil && fl.Changed {
			src.Flags = append(src.Flags, settings.Flag{Name: "--" + k.flag, Key: k.key, Value: fl.Value.String()})
		}
	}
	for flag, key := range map[string]string{"insecure": "insecure", "mdns": "mesh.mdns"} {
		if fl := cmd.Flags().Lookup(flag); fl != nil && fl.Changed {
			src.Flags = append(src.Flags, settings.Flag{Name: "--" + flag, Key: key, Value: fl.Value.String()})
		}
	}
	if a.data != "" {
		src.Flags = append(src.Flags, settings.Flag{Name: "--data", Key: "data", Value: a.data})
	}
	loaded, err := settings.Load(src)
	if dir, absErr := filepath.Abs(loaded.Config.Data); absErr == nil && loaded.Config.Data != "" {
		loaded.Config.Data = dir
	}
	return loaded, cli.Hint(err, "lattice config print lists every key with its meaning")
}

func newConfig(a *app) *cobra.Command {
	return family("config", "Show and check a node's configuration", newConfigPrint(a), newConfigCheck(a))
}

func newConfigPrint(a *app) *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Show the effective configuration and where each value came from",
		Long: `Show the configuration that "lattice up" would use with the same flags, environment
and file, and where each value came from. Every key can stand in the file, be set in the
environment (kafka.listen as LATTICE_KAFKA_LISTEN) and given as --set KEY=VALUE.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := a.load(cmd, f)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"settings": loaded.Settings}, func() error { return a.showSettings(loaded.Settings) })
		},
	}
	f.add(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) showSettings(all []node.Setting) error {
	t := cli.NewTable("KEY", "VALUE", "SOURCE", "MEANING")
	for _, s := range all {
		value := s.Value
		if value == "" {
			value = `""`
		}
		t.Row(s.Key, value, s.Source, s.Doc)
	}
	_, err := t.WriteTo(a.stdout)
	return err
}

func newConfigCheck(a *app) *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration without starting anything",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactly("FILE")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if f.file != "" {
					return cli.Usagef("give FILE or --config, and not both")
				}
				f.file = args[0]
			}
			loaded, err := a.load(cmd, f)
			if err != nil && cli.IsUsage(err) {
				return err
			}
			if a.output == "json" {
				problems := []string{}
				if err != nil {
					problems = strings.Split(err.Error(), "\n")
				}
				if err := cli.WriteJSON(a.stdout, map[string]any{"valid": err == nil, "problems": problems}); err != nil {
					return err
				}
				if err != nil {
					return cli.Exit(cli.ExitFailed)
				}
				return nil
			}
			if err != nil {
				return err
			}
			set := 0
			for _, s := range loaded.Settings {
				if s.Source != "default" {
					set++
				}
			}
			_, err = fmt.Fprintf(a.stdout, "The configuration is valid: %d of %d keys are set.\n", set, len(loaded.Settings))
			return err
		},
	}
	f.add(cmd)
	a.outputFlag(cmd)
	return cmd
}
