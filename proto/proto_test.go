package proto_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lattice-log/lattice/proto"
	latticev1 "github.com/lattice-log/lattice/proto/lattice/v1"
)

// The committed document describes the committed code: run gen.sh when it fails.
func TestOpenAPIMatchesTheCode(t *testing.T) {
	var doc struct {
		Paths      map[string]any
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal(proto.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	methods := 0
	for _, f := range []protoreflect.FileDescriptor{
		latticev1.File_lattice_v1_error_proto, latticev1.File_lattice_v1_group_proto, latticev1.File_lattice_v1_log_proto,
		latticev1.File_lattice_v1_node_proto, latticev1.File_lattice_v1_proof_proto, latticev1.File_lattice_v1_store_proto,
		latticev1.File_lattice_v1_topic_proto, latticev1.File_lattice_v1_key_proto, latticev1.File_lattice_v1_peer_proto, latticev1.File_lattice_v1_stranded_proto,
	} {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				methods++
				if path := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(j).Name()); doc.Paths[path] == nil {
					t.Errorf("no path %s", path)
				}
			}
		}
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			schema, ok := doc.Components.Schemas[string(m.FullName())]
			if !ok || len(schema.Properties) != m.Fields().Len() {
				t.Errorf("schema %s has properties %v", m.FullName(), schema.Properties)
			}
			for j := range m.Fields().Len() {
				if name := m.Fields().Get(j).JSONName(); schema.Properties[name] == nil {
					t.Errorf("schema %s has no property %s", m.FullName(), name)
				}
			}
		}
	}
	if len(doc.Paths) != methods {
		t.Errorf("%d paths for %d methods", len(doc.Paths), methods)
	}
	for _, part := range strings.Split(string(proto.OpenAPI), `"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if _, ok := doc.Components.Schemas[name]; !ok {
			t.Errorf("reference to %s, which is not there", name)
		}
	}
}
