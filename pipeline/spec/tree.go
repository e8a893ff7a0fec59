package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

type kind uint8

const (
	scalar kind = iota
	mapping
	sequence
)

func (k kind) String() string { return [...]string{"a single value", "a mapping", "a list"}[k] }

// node is one YAML value with its place. Aliases are resolved.
type node struct {
	Pos
	kind  kind
	value any    // of a scalar: nil, bool, int64, float64, string
	text  string // of a scalar, as it was written
	first int    // columns before a scalar's text: 1 within quotes
	block bool   // a scalar over several lines, whose columns are not known
	keys  []*node
	items []*node // of a sequence; the values of a mapping
}

// describe says what a node is, for messages.
func (n *node) describe() string {
	if n.kind != scalar {
		return n.kind.String()
	}
	switch v := n.value.(type) {
	case nil:
		return "nothing"
	case string:
		if len(v) > 40 {
			v = v[:40] + "..."
		}
		return strconv.Quote(v)
	}
	return fmt.Sprint(n.value)
}

// parser makes nodes of YAML within the bounds.
type parser struct {
	file  string
	left  *int // nodes that may still come, of all files
	fail  func(Pos, string, ...any)
	ended bool // a bound was met: one report is enough
}

// parse returns the one document of a file, or nil.
func (p *parser) parse(text []byte) *node {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		p.syntax(err)
		return nil
	}
	if err := d.Decode(&more); err == nil {
		p.fail(Pos{p.file, more.Line, more.Column}, "expected one document in a file; put this one in a file of its own")
		return nil
	} else if !errors.Is(err, io.EOF) {
		p.syntax(err)
		return nil
	}
	if len(doc.Content) != 1 {
		return nil
	}
	return p.node(doc.Content[0], 0)
}

func (p *parser) syntax(err error) {
	pos := Pos{File: p.file}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(text); m != nil {
		pos.Line, _ = strconv.Atoi(m[1])
		text = strings.TrimPrefix(text, m[0])
	}
	p.fail(pos, "YAML: %s", text)
}

func (p *parser) node(y *yaml.Node, depth int) *node {
	pos := Pos{p.file, y.Line, y.Column}
	if *p.left--; *p.left < 0 || depth > MaxNesting {
		if !p.ended {
			p.ended = true
			if depth > MaxNesting {
				p.fail(pos, "nested more than %d deep", MaxNesting)
			} else {
				p.fail(pos, "more than %d values, aliases counted where they are used", MaxNodes)
			}
		}
		return nil
	}
	switch y.Kind {
	case yaml.AliasNode:
		n := p.node(y.Alias, depth+1)
		if n != nil {
			n.Pos = pos // where it is used
		}
		return n
	case yaml.ScalarNode:
		return p.scalar(y, pos)
	case yaml.SequenceNode:
		n := &node{Pos: pos, kind: sequence}
		for _, c := range y.Content {
			item := p.node(c, depth+1)
			if item == nil {
				return nil
			}
			n.items = append(n.items, item)
		}
		return n
	case yaml.MappingNode:
		return p.mapping(y, pos, depth)
	}
	p.fail(pos, "expected a value, a list or a mapping")
	return nil
}

func (p *parser) mapping(y *yaml.Node, pos Pos, depth int) *node {
	n := &node{Pos: pos, kind: mapping}
	seen := map[string]int{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := p.node(y.Content[i], depth+1), p.node(y.Content[i+1], depth+1)
		if key == nil || value == nil {
			return nil
		}
		switch {
		case key.kind != scalar:
			p.fail(key.Pos, "expected a name, and this is %s", key.kind)
			continue
		case key.text == "<<":
			p.fail(key.Pos, "merge keys are not read; write the members out")
			continue
		case seen[key.text] > 0:
			p.fail(key.Pos, "%q is here already, in line %d", key.text, seen[key.text])
			continue
		}
		seen[key.text] = key.Line
		n.keys, n.items = append(n.keys, key), append(n.items, value)
	}
	return n
}

func (p *parser) scalar(y *yaml.Node, pos Pos) *node {
	n := &node{Pos: pos, text: y.Value, block: y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || strings.Contains(y.Value, "\n")}
	if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		n.first = 1
	}
	switch y.ShortTag() {
	case "!!null":
		return n
	case "!!bool":
		n.value = strings.EqualFold(y.Value, "true")
		return n
	case "!!int", "!!float":
		var v any
		if err := y.Decode(&v); err == nil {
			switch v := v.(type) {
			case int:
				n.value = int64(v)
			case int64:
				n.value = v
			case uint64:
				n.value = float64(v)
			case float64:
				n.value = v
				if math.IsNaN(v) || math.IsInf(v, 0) {
					p.fail(pos, "expected a finite number, and this is %s", y.Value)
				}
			}
		}
		if n.value == nil {
			n.value = y.Value
		}
		return n
	case "!!str", "!!timestamp", "!!merge":
		n.value = y.Value
		return n
	}
	p.fail(pos, "the tag %s is not read", y.Tag)
	n.value = y.Value
	return n
}
