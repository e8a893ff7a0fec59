// Command rawstream copies files over one libp2p stream and syncs them: what make
// bench-mesh measures the mesh against. It is the least that a carrier with the same
// transport can cost: nothing is checked, signed or indexed.
//
//	rawstream serve FILE...     prints its address, and sends the files to who connects
//	rawstream copy ADDRESS DIR  writes them, and syncs
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
)

const protocol = "/lattice/rawstream/1"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rawstream:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 1 && args[0] == "serve":
		return serve(args[1:])
	case len(args) == 3 && args[0] == "copy":
		return copyAll(args[1], args[2])
	}
	return errors.New("usage: rawstream serve FILE... | copy ADDRESS DIR")
}

// newHost is the mesh's transport, without what the mesh bounds.
func newHost(listen string) (host.Host, error) {
	where := libp2p.NoListenAddrs
	if listen != "" {
		where = libp2p.ListenAddrStrings(listen)
	}
	return libp2p.New(where, libp2p.Transport(tcp.NewTCPTransport), libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport), libp2p.DisableRelay(), libp2p.DisableMetrics(), libp2p.Ping(false), libp2p.ForceReachabilityPrivate())
}

func serve(files []string) error {
	h, err := newHost("/ip4/127.0.0.1/tcp/0")
	if err != nil {
		return err
	}
	h.SetStreamHandler(protocol, func(s network.Stream) {
		for _, name := range files {
			if err := send(s, name); err != nil {
				_ = s.Reset()
				return
			}
		}
		_ = s.CloseWrite()
	})
	fmt.Printf("%s/p2p/%s\n", h.Addrs()[0], h.ID())
	_, err = io.Copy(io.Discard, os.Stdin) // it ends with who started it
	return errors.Join(err, h.Close())
}

func send(s network.Stream, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil {
		_, err = s.Write(binary.BigEndian.AppendUint64(nil, uint64(info.Size())))
	}
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{s}, io.LimitReader(f, info.Size()), make([]byte, 256<<10))
	}
	return err
}

func copyAll(address, dir string) error {
	a, err := multiaddr.NewMultiaddr(address)
	if err != nil {
		return err
	}
	to, err := peer.AddrInfoFromP2pAddr(a)
	if err != nil {
		return err
	}
	h, err := newHost("")
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := h.Connect(ctx, *to); err != nil {
		return err
	}
	s, err := h.NewStream(ctx, to.ID, protocol)
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(s, 256<<10)
	for i := 0; ; i++ {
		var size [8]byte
		if _, err := io.ReadFull(r, size[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := receive(r, filepath.Join(dir, fmt.Sprint(i)), int64(binary.BigEndian.Uint64(size[:]))); err != nil {
			return err
		}
	}
}

func receive(r io.Reader, name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(r, size), make([]byte, 256<<10))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
