package main

import (
	"os"
	"slices"
	"strings"
)

// history is the lines of input, the oldest first, kept in a file that only its
// owner reads: lines hold values. It implements term.History.
type history struct {
	path  string
	lines []string
}

// loadHistory reads the file; without one the history is empty.
func loadHistory(path string) *history {
	h := &history{path: path}
	if b, err := os.ReadFile(path); err == nil {
		h.lines = strings.Split(strings.TrimRight(string(b), "\n"), "\n")
		h.lines = slices.DeleteFunc(h.lines, func(l string) bool { return l == "" })
		h.lines = h.lines[max(0, len(h.lines)-shellHistory):]
	}
	return h
}

// Add remembers a line. That it cannot be written is no reason to stop working.
func (h *history) Add(line string) {
	if strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	h.lines = h.lines[max(0, len(h.lines)-shellHistory):]
	_ = os.WriteFile(h.path, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600)
}

// Len returns the number of lines.
func (h *history) Len() int { return len(h.lines) }

// At returns a line, the newest at 0.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }
