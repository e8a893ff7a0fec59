package kafka

import (
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDescribedAddresses: a node whose configuration leaves its addresses open
// says where it is, as tools that read advertised.listeners expect.
func TestDescribedAddresses(t *testing.T) {
	f := &fixture{t: t, fs: disk.NewMem()}
	f.store = newStore(t, f.fs, func(c *store.Config) {
		c.NodeConfig = []store.ConfigEntry{
			{Name: "listeners", Value: "127.0.0.1:0", Type: "list", Source: "node"},
			{Name: "advertised.listeners", Value: "", Type: "list", Source: "default"},
		}
	})
	f.serve(Config{})
	req := newReq[*kmsg.DescribeConfigsRequest](4)
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeBroker, fmt.Sprint(f.srv.nodeID())
	req.Resources = append(req.Resources, rr)
	found := 0
	for _, cfg := range ask[*kmsg.DescribeConfigsResponse](f.dial(), req).Resources[0].Configs {
		if cfg.Name == "listeners" || cfg.Name == "advertised.listeners" {
			found++
			if want := "PLAINTEXT://" + f.addr; *cfg.Value != want {
				t.Errorf("%s is %q, want %q", cfg.Name, *cfg.Value, want)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d of the two addresses are listed", found)
	}
}
