package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	lattice "github.com/lattice-log/lattice"
)

// Payload makes the values of this package from the bytes of a JSON object: whole
// numbers that fit are int64, all others float64. It refuses, with lattice.Invalid or
// TooLarge, what is no object, too large, nested too deep, followed by something, or
// has a member twice.
func Payload(raw []byte) (map[string]any, error) {
	if len(raw) > MaxPayload {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("payload: %d bytes, more than %d", len(raw), MaxPayload))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decodeJSON(d, 0)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	m, ok := v.(map[string]any)
	if err == nil && !ok {
		err = errors.New("expected a JSON object")
	}
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("payload: %w", err))
	}
	return m, nil
}

func decodeJSON(d *json.Decoder, depth int) (any, error) {
	tok, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if depth > MaxNesting {
		return nil, fmt.Errorf("nested more than %d deep", MaxNesting)
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			list := []any{}
			for d.More() {
				v, err := decodeJSON(d, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := d.Token()
			return list, err
		}
		return decodeObject(d, depth)
	case json.Number:
		if i, err := strconv.ParseInt(tok.String(), 10, 64); err == nil {
			return i, nil
		}
		f, err := strconv.ParseFloat(tok.String(), 64)
		if err != nil {
			return nil, fmt.Errorf("number %.40q is out of range", tok.String())
		}
		return f, nil
	}
	return tok, nil // nil, bool, string
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	m := map[string]any{}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := tok.(string)
		if !ok {
			return nil, errors.New("expected a member's name")
		}
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("the member %.40q is there twice", name)
		}
		if m[name], err = decodeJSON(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return m, err
}
