package spec

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// ColumnType is what a column holds, and which Go type its values have.
type ColumnType uint8

// The column types. NULL is nil in each.
const (
	Text      ColumnType = iota // string
	SmallInt                    // int64
	Integer                     // int64
	BigInt                      // int64
	Double                      // float64
	Boolean                     // bool
	JSON                        // string, JSON text
	UUID                        // string
	Timestamp                   // time.Time, UTC, whole microseconds
	Decimal                     // string, such as "-12.50"
	Bytes                       // []byte
)

func (t ColumnType) String() string {
	return [...]string{
		"TEXT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE PRECISION", "BOOLEAN", "JSON", "UUID", "TIMESTAMP", "DECIMAL", "BYTEA",
	}[t]
}

// Column is one column of a table.
type Column struct {
	Name string
	Type ColumnType
	// Size is the greatest number of characters of a VARCHAR or CHAR; 0: no bound.
	Size int
	// Precision and Scale are those of a DECIMAL(p, s); 0: not given.
	Precision, Scale int
}

// columnTypes maps the names a file may use.
func columnTypes() map[string]ColumnType {
	return map[string]ColumnType{
		"TEXT": Text, "VARCHAR": Text, "CHAR": Text, "SMALLINT": SmallInt, "TINYINT": SmallInt, "INTEGER": Integer,
		"INT": Integer, "BIGINT": BigInt, "SERIAL": BigInt, "FLOAT": Double, "DOUBLE": Double, "DOUBLE PRECISION": Double,
		"REAL": Double, "BOOLEAN": Boolean, "BOOL": Boolean, "JSON": JSON, "JSONB": JSON, "UUID": UUID, "TIMESTAMP": Timestamp,
		"TIMESTAMPTZ": Timestamp, "DECIMAL": Decimal, "NUMERIC": Decimal, "BYTEA": Bytes,
	}
}

// columnOf reads a column's type: TEXT, VARCHAR(64), NUMERIC(10,2).
func (c *checker) columnOf(name string, n *node, what string) Column {
	col := Column{Name: name}
	m := regexp.MustCompile(`^([A-Z]+(?: [A-Z]+)?)\s*(?:\(\s*(\d{1,4})\s*(?:,\s*(\d{1,3})\s*)?\))?$`).
		FindStringSubmatch(strings.ToUpper(strings.TrimSpace(n.text)))
	types := columnTypes()
	if m == nil || n.kind != scalar {
		c.unknown(n.Pos, what+": unknown column type", n.text, sortedKeys(types))
		return col
	}
	t, ok := types[m[1]]
	if !ok {
		c.unknown(n.Pos, what+": unknown column type", n.text, sortedKeys(types))
		return col
	}
	col.Type = t
	first, _ := strconv.Atoi(m[2])
	second, _ := strconv.Atoi(m[3])
	switch {
	case m[2] == "":
	case t == Text && m[1] != "TEXT" && m[3] == "":
		col.Size = first
	case t == Decimal && first > 0 && second <= first:
		col.Precision, col.Scale = first, second
	default:
		c.fail(n.Pos, "%s: %s takes no such size", what, m[1])
	}
	return col
}

// Numeric reports whether an aggregate can count in the column.
func (c Column) Numeric() bool {
	switch c.Type {
	case SmallInt, Integer, BigInt, Double, Decimal:
		return true
	}
	return false
}

// takes reports whether a JSON value of kind k can be put into the column.
func (c Column) takes(k expr.Kind) bool {
	switch {
	case k == expr.Any || c.Type == Text || c.Type == JSON:
		return true
	case c.Numeric():
		return k == expr.Number || c.Type == Decimal && k == expr.String
	case c.Type == Boolean:
		return k == expr.Bool
	case c.Type == Timestamp:
		return k == expr.Number || k == expr.String
	}
	return k == expr.String
}

// Convert returns a JSON value as the column holds it.
func (c Column) Convert(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	out, err := c.convert(v)
	if err != nil {
		return nil, fmt.Errorf("column %s: %w", c.Name, err)
	}
	return out, nil
}

func (c Column) convert(v any) (any, error) {
	switch c.Type {
	case Text:
		return c.text(v)
	case SmallInt, Integer, BigInt:
		return c.whole(v)
	case Double:
		return float(v)
	case Boolean:
		if b, ok := v.(bool); ok {
			return b, nil
		}
	case JSON:
		return jsonText(v)
	case UUID:
		if s, ok := v.(string); ok && regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`).MatchString(s) {
			return strings.ToLower(s), nil
		}
	case Timestamp:
		return timestamp(v)
	case Decimal:
		return c.decimal(v)
	case Bytes:
		if s, ok := v.(string); ok {
			return base64.StdEncoding.DecodeString(s)
		}
	}
	return nil, fmt.Errorf("expected %s, and this is %s", c.Type, kindOf(v))
}

func (c Column) text(v any) (any, error) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case int64:
		s = strconv.FormatInt(v, 10)
	case float64:
		s = strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		s = strconv.FormatBool(v)
	default:
		text, err := jsonText(v)
		if err != nil {
			return nil, err
		}
		s = text
	}
	switch {
	case strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s):
		return nil, fmt.Errorf("the text has bytes that a database refuses")
	case c.Size > 0 && utf8.RuneCountInString(s) > c.Size:
		return nil, fmt.Errorf("%d characters, more than %d", utf8.RuneCountInString(s), c.Size)
	}
	return s, nil
}

func (c Column) whole(v any) (any, error) {
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return nil, fmt.Errorf("expected %s, and this is %s", c.Type, strconv.FormatFloat(v, 'g', -1, 64))
		}
		n = int64(v)
	default:
		return nil, fmt.Errorf("expected %s, and this is %s", c.Type, kindOf(v))
	}
	bits := map[ColumnType]int{SmallInt: 16, Integer: 32, BigInt: 64}[c.Type]
	if n < -1<<(bits-1) || n > 1<<(bits-1)-1 {
		return nil, fmt.Errorf("%d does not fit into %s", n, c.Type)
	}
	return n, nil
}

func (c Column) decimal(v any) (any, error) {
	r, err := decimal(v)
	if err != nil {
		return nil, err
	}
	if c.Precision == 0 {
		return decimalText(r), nil
	}
	s := r.FloatString(c.Scale)
	if whole, _, _ := strings.Cut(strings.TrimPrefix(s, "-"), "."); len(whole) > c.Precision-c.Scale && whole != "0" {
		return nil, fmt.Errorf("%s does not fit into DECIMAL(%d,%d)", s, c.Precision, c.Scale)
	}
	return s, nil
}

// timestamp reads milliseconds since 1970, an RFC 3339 time or a date.
func timestamp(v any) (any, error) {
	switch v := v.(type) {
	case int64:
		return time.UnixMilli(v).UTC(), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return time.UnixMilli(int64(v)).UTC(), nil
		}
	case string:
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
			if t, err := time.Parse(layout, v); err == nil {
				return t.UTC().Truncate(time.Microsecond), nil
			}
		}
	case time.Time:
		return v.UTC().Truncate(time.Microsecond), nil
	}
	return nil, fmt.Errorf("expected milliseconds since 1970 or a time, and this is %s", kindOf(v))
}

// Read returns what a database answered as the column holds it: drivers have several
// Go types for one, and several texts.
func (c Column) Read(v any) (any, error) {
	switch x := v.(type) {
	case nil:
		return nil, nil
	case []byte:
		if c.Type == Bytes {
			return x, nil
		}
		v = string(x)
	case int:
		v = int64(x)
	case int16:
		v = int64(x)
	case int32:
		v = int64(x)
	case float32:
		v = float64(x)
	}
	s, isText := v.(string)
	n, isInt := v.(int64)
	switch {
	case c.Type == JSON && isText:
		return c.readJSON(s)
	case c.Type == Boolean && isInt: // SQLite has no booleans
		return n != 0, nil
	case c.Type == Timestamp && isText:
		for _, layout := range []string{"2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
			if t, err := time.Parse(layout, s); err == nil {
				return t.UTC().Truncate(time.Microsecond), nil
			}
		}
	}
	return c.Convert(v)
}

// readJSON writes JSON text as Convert does: a database may have put its members in
// another order, and spaces between them.
func (c Column) readJSON(s string) (any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("column %s: %w", c.Name, err)
	}
	return jsonText(v)
}

// Argument returns a column's value as an argument of a statement: a time is text of one
// width in UTC, so that it sorts where a database has no type for it.
func (c Column) Argument(v any) any {
	if t, ok := v.(time.Time); ok {
		return t.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	return v
}

// JSONValue returns a column's value as JSON has it, for patches: a time as RFC 3339,
// bytes as base64, a JSON column as what it holds.
func (c Column) JSONValue(v any) any {
	switch x := v.(type) {
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case []byte:
		return base64.StdEncoding.EncodeToString(x)
	case string:
		if c.Type == JSON {
			return json.RawMessage(x)
		}
	}
	return v
}
