package main

import (
	"io"
	"slices"
	"testing"
)

// TestShellCompletes: short names, commands, what help is about, and words behind
// them; with no node running.
func TestShellCompletes(t *testing.T) {
	s := &session{a: &app{stdout: io.Discard, stderr: io.Discard, data: t.TempDir()}}
	for line, want := range map[string][]string{
		"ge":          {"get"},
		"pu":          {"put"},
		"use":         {"use"},
		"qu":          {"quit"},
		"stat":        {"status"},
		"kv wa":       {"watch"},
		"kv h":        {"heads", "history"},
		"proof k":     {"key"},
		"help ver":    {"verify", "version"},
		"help kv exp": {"export"},
		"create-s":    {"create-store"},
		"lis":         {"list-stores"},
		"nothing":     nil,
	} {
		if got := s.complete(line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
