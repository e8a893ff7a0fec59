package api

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec is protobuf's JSON with two differences from Connect's own: numbers
// that are 0 and lists that are empty are written, since scripts look for them,
// and a field that does not exist is an error, not ignored.
type jsonCodec struct{ name string }

// jsonCodecs are the names that Connect knows JSON by.
func jsonCodecs() connect.Option {
	return connect.WithOptions(connect.WithCodec(jsonCodec{"json"}), connect.WithCodec(jsonCodec{"json; charset=utf-8"}))
}

func (c jsonCodec) Name() string { return c.name }

func (jsonCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", v)
	}
	return protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
}

func (jsonCodec) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", v)
	}
	if len(b) == 0 {
		return errors.New("no JSON object; an empty request is {}")
	}
	return protojson.Unmarshal(b, m)
}
