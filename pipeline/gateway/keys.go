package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/gateway/grant"
)

const (
	maxKeyBytes = 1 << 20
	keysEvery   = 30 * time.Second // a file; a JWKS ten times as long
)

// Keys keeps the keys of tokens as their file or JWKS has them. When that cannot be read, the last
// ones stay.
type Keys struct {
	where  string
	client *http.Client
	log    *slog.Logger
	now    atomic.Pointer[grant.Keys]
}

// OpenKeys reads keys from a file, or from an address that serves a JWKS: https, or http on
// this machine.
func OpenKeys(ctx context.Context, where string, log *slog.Logger) (*Keys, error) {
	k := &Keys{where: where, client: &http.Client{Timeout: 10 * time.Second}, log: log}
	if k.remote() {
		u, err := url.Parse(where)
		if err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("token keys: %w", err))
		}
		ip, err := netip.ParseAddr(u.Hostname())
		if local := u.Hostname() == "localhost" || err == nil && ip.IsLoopback(); u.Scheme != "https" && !local {
			return nil, lattice.E(lattice.Invalid, errors.New("token keys: an http address that is not on this machine: anybody between could sign tokens; take https"))
		}
	}
	return k, k.load(ctx)
}

func (k *Keys) remote() bool {
	return strings.HasPrefix(k.where, "http://") || strings.HasPrefix(k.where, "https://")
}

// Verify returns what a token grants.
func (k *Keys) Verify(token string, now time.Time) (grant.Grant, error) {
	return k.now.Load().Verify(token, now)
}

// Run reads the keys again and again until the context ends.
func (k *Keys) Run(ctx context.Context) {
	every := keysEvery
	if k.remote() {
		every *= 10
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := k.load(ctx); err != nil && ctx.Err() == nil {
				k.log.Warn("the token keys stay as they were", "error", err)
			}
		}
	}
}

func (k *Keys) load(ctx context.Context) error {
	b, err := k.bytes(ctx)
	if err != nil {
		return lattice.E(lattice.Unavailable, fmt.Errorf("read the token keys: %w", err))
	}
	keys, err := grant.ParseKeys(b)
	if err != nil {
		return err
	}
	k.now.Store(keys)
	return nil
}

func (k *Keys) bytes(ctx context.Context) ([]byte, error) {
	if !k.remote() {
		return os.ReadFile(k.where)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.where, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxKeyBytes))
}
