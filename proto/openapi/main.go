// Command openapi writes an OpenAPI 3.1 document for Connect services: what to
// POST, as JSON, and what comes back. It reads a FileDescriptorSet (protoc
// --include_imports --include_source_info --descriptor_set_out) from standard
// input, so that the comments of the .proto files become the descriptions.
//
// Streaming methods are listed with the envelope format that they use, since
// OpenAPI cannot say more about them.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

type object = map[string]any

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	b, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read descriptors: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(b, &set); err != nil {
		return fmt.Errorf("read descriptors: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return fmt.Errorf("link descriptors: %w", err)
	}
	d := document{paths: object{}, schemas: object{}}
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !wellKnown(f.FullName()) {
			d.file(f)
		}
		return true
	})
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(d.whole())
}

func wellKnown(name protoreflect.FullName) bool {
	return strings.HasPrefix(string(name), "google.protobuf")
}

// document collects the parts.
type document struct {
	paths, schemas object
	tags           []object
}

func (d *document) whole() object {
	sort.Slice(d.tags, func(i, j int) bool { return d.tags[i]["name"].(string) < d.tags[j]["name"].(string) })
	d.schemas["ConnectError"] = object{
		"type": "object",
		"properties": object{
			"code":    object{"type": "string", "examples": []string{"not_found"}},
			"message": object{"type": "string"},
			"details": object{"type": "array", "items": object{"type": "object", "properties": object{
				"type":  object{"type": "string", "examples": []string{"lattice.v1.Failure"}},
				"value": object{"type": "string", "contentEncoding": "base64"},
				"debug": ref("lattice.v1.Failure"),
			}}},
		},
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Lattice", "version": "v1",
			"description": "The API of a Lattice node. Unary methods take a JSON object by POST. 64-bit numbers are strings in " +
				"answers and may be numbers in requests; bytes are base64; field names may be written in camelCase or snake_case.",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"security": []object{{}, {"token": []string{}}},
		"tags":     d.tags,
		"paths":    d.paths,
		"components": object{
			"schemas":         d.schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}
}

func (d *document) file(f protoreflect.FileDescriptor) {
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		d.tags = append(d.tags, object{"name": string(s.Name()), "description": comment(s)})
		for j := range s.Methods().Len() {
			d.method(s, s.Methods().Get(j))
		}
	}
	d.enums(f.Enums())
	d.messages(f.Messages())
}

func (d *document) method(s protoreflect.ServiceDescriptor, m protoreflect.MethodDescriptor) {
	media, description := "application/json", comment(m)
	if m.IsStreamingClient() || m.IsStreamingServer() {
		media = "application/connect+json"
		description += "\n\nStreaming: each message is one byte of flags, its length in four bytes (big-endian), and JSON; " +
			"the last message, flag 2, is the end of the stream."
	}
	op := object{
		"operationId": string(s.Name()) + "_" + string(m.Name()),
		"tags":        []string{string(s.Name())},
		"description": description,
		"requestBody": object{"required": true, "content": object{media: object{"schema": ref(m.Input().FullName())}}},
		"responses": object{
			"200":     object{"description": "Success", "content": object{media: object{"schema": ref(m.Output().FullName())}}},
			"default": object{"description": "Failure", "content": object{"application/json": object{"schema": ref("ConnectError")}}},
		},
	}
	d.paths["/"+string(s.FullName())+"/"+string(m.Name())] = object{"post": op}
}

func (d *document) messages(all protoreflect.MessageDescriptors) {
	for i := range all.Len() {
		m := all.Get(i)
		if m.IsMapEntry() {
			continue
		}
		properties := object{}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			properties[f.JSONName()] = d.field(f)
		}
		schema := object{"type": "object", "properties": properties}
		describe(schema, m)
		d.schemas[string(m.FullName())] = schema
		d.messages(m.Messages())
		d.enums(m.Enums())
	}
}

func (d *document) enums(all protoreflect.EnumDescriptors) {
	for i := range all.Len() {
		e := all.Get(i)
		var names, notes []string
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			names = append(names, string(v.Name()))
			if c := comment(v); c != "" {
				notes = append(notes, fmt.Sprintf("%s: %s", v.Name(), c))
			}
		}
		schema := object{"type": "string", "enum": names}
		describe(schema, e)
		if len(notes) > 0 {
			schema["description"] = strings.TrimSpace(comment(e) + "\n\n" + strings.Join(notes, "\n"))
		}
		d.schemas[string(e.FullName())] = schema
	}
}

func (d *document) field(f protoreflect.FieldDescriptor) object {
	var schema object
	switch {
	case f.IsMap():
		schema = object{"type": "object", "additionalProperties": scalar(f.MapValue())}
	case f.IsList():
		schema = object{"type": "array", "items": scalar(f)}
	default:
		schema = scalar(f)
	}
	describe(schema, f)
	return schema
}

// scalar is the schema of one value, by the JSON mapping of protobuf.
func scalar(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return object{"type": "integer", "format": "int32"}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return object{"type": "integer", "format": "uint32"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return object{"type": []string{"string", "integer"}, "format": "int64"}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{"type": []string{"string", "integer"}, "format": "uint64"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return object{"type": "number"}
	case protoreflect.EnumKind:
		return ref(f.Enum().FullName())
	}
	if f.Message().FullName() == "google.protobuf.Timestamp" {
		return object{"type": "string", "format": "date-time"}
	}
	if f.Message().FullName() == "google.protobuf.Duration" {
		return object{"type": "string", "description": "Seconds with the letter s, as in 86400s.", "pattern": "^-?[0-9]+(\\.[0-9]+)?s$"}
	}
	return ref(f.Message().FullName())
}

func ref(name protoreflect.FullName) object {
	return object{"$ref": "#/components/schemas/" + string(name)}
}

func describe(schema object, d protoreflect.Descriptor) {
	if c := comment(d); c != "" {
		schema["description"] = c
	}
}

// comment returns what stands before d in its file, as running text.
func comment(d protoreflect.Descriptor) string {
	raw := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	paragraphs := strings.Split(strings.TrimSpace(raw), "\n\n")
	for i, p := range paragraphs {
		lines := strings.Split(p, "\n")
		for j := range lines {
			lines[j] = strings.TrimSpace(lines[j])
		}
		paragraphs[i] = strings.TrimSpace(strings.Join(lines, " "))
	}
	return strings.Join(paragraphs, "\n\n")
}
