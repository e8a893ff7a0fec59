package fsck_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestCleanAfterAStop(t *testing.T) {
	fs := disk.NewMem()
	n := enginetest.New(t, fs)
	top := n.Topic("a", 2)
	for i := range 20 {
		n.Put(n.Part(top, int32(i%2)), record.None, fmt.Sprint("v", i))
	}
	n.Stop()
	r := fsck.MustBeClean(t, fs, enginetest.Dir)
	t.Log(r)
	if r.Stores != 1 || r.Topics != 1 || r.Partitions != 2 || r.Batches != 20 || r.Leaves != 20 || len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
}

var _ = context.Background
