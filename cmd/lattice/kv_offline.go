package main

import (
	"context"
	"errors"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/node"
)

// getKey asks the running node, or else opens the directory of a stopped one.
func (a *app) getKey(ctx context.Context, m string, key []byte) (k client.Key, err error) {
	get := func(c *client.Client) error {
		k, err = c.Keys(m).Get(ctx, key)
		return err
	}
	err = a.withClient(get)
	if err == nil || lattice.KindOf(err) != lattice.Unavailable || a.nodeURL != "" || ctx.Err() != nil {
		return k, err
	}
	return k, a.offline(ctx, err, get)
}

// openStopped opens the store that is meant, in the directory of a stopped node.
// unreachable is why no running node answered, and stays the error where there is
// no directory either.
func (a *app) openStopped(unreachable error) (*node.Offline, error) {
	dir, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	o, err := node.OpenOffline(dir, a.store, nil)
	var held *node.HeldError
	if errors.As(err, &held) || err != nil && lattice.KindOf(err) == lattice.NotFound && a.store == "" {
		return nil, unreachable
	}
	return o, err
}

// offline runs f with a connection to the store of a stopped node, opened for it;
// see openStopped.
func (a *app) offline(ctx context.Context, unreachable error, f func(*client.Client) error) error {
	o, err := a.openStopped(unreachable)
	if err != nil {
		return err
	}
	dial, stop, err := o.Serve(ctx)
	if err != nil {
		return errors.Join(err, o.Close())
	}
	c, err := client.Dial(client.Options{Dial: dial})
	if err == nil {
		err = errors.Join(f(c), c.Close())
	}
	return errors.Join(err, stop(), o.Close())
}
