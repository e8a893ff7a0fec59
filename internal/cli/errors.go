// Package cli is what every command of a command-line program shares: errors
// that name a next step and end in the right exit code, tables, JSON documents,
// figures for people and a progress meter. It knows nothing of the product.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit codes of every command.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// usageError marks an error as wrong usage.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Usagef returns an error that ends the program with ExitUsage.
func Usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Usage marks err as wrong usage. Usage(nil) is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// IsUsage reports whether err is wrong usage.
func IsUsage(err error) bool {
	var u *usageError
	return errors.As(err, &u)
}

// hinted carries the next step beside an error.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// Hint adds the next step to an error: words, or a command to paste. An error
// that has one already keeps it. Hint(nil, h) is nil.
func Hint(err error, format string, args ...any) error {
	if err == nil || HintOf(err) != "" {
		return err
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// HintOf returns the next step that an error carries, or "".
func HintOf(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}

// silent is an exit code without a message: the command said all there is to say.
type silent struct{ code int }

func (e *silent) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Exit returns an error that ends the program with code and prints nothing.
func Exit(code int) error { return &silent{code} }

// Report prints an error in the shape that all commands share and returns the
// exit code. where names the command, as in "lattice topic create".
//
//	lattice topic create: topic "a b": a name has letters, digits, '.', '_' and '-' only
//	  next: lattice topic create a_b
func Report(w io.Writer, where string, err error) int {
	var s *silent
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &s):
		return s.code
	}
	text := strings.ReplaceAll(err.Error(), "\n", "\n  ")
	fmt.Fprintf(w, "%s: %s\n", where, text)
	if h := HintOf(err); h != "" {
		fmt.Fprintf(w, "  next: %s\n", h)
	}
	if IsUsage(err) {
		return ExitUsage
	}
	return ExitFailed
}
