// Package client talks to a running Lattice node: topics, records, consumer
// groups and proofs. It is the one package of this module that promises
// compatibility: within a major version, what is exported here keeps working.
//
// Dial finds a node through its data directory or a URL:
//
//	c, err := client.Dial(client.Options{DataDir: dir})
//
// Errors of calls carry a lattice.Kind (lattice.KindOf) and, as *Error, a hint
// that says what to do next. A Client and everything made from it is safe for
// concurrent use, except where a type says otherwise.
//
// Records travel as Kafka record batches that are built and read here, so the
// node never re-encodes them, and a batch that this package made is what any
// Kafka client would read.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
)

// maxMessage bounds one message from the node, in bytes. Larger than any batch
// that a node accepts by default, so only a broken peer meets it.
const maxMessage = 256 << 20

// Options says which node to talk to, and how. Give DataDir or URL.
type Options struct {
	// DataDir is the data directory of a node on this machine; its node.json
	// says where the node listens.
	DataDir string
	// URL is the node's API: http://host:port, https://host:port or
	// unix:///path/to/api.sock.
	URL string
	// Token is sent with each request, when not empty.
	Token string
	// TLS is used for https URLs; nil means the system's roots.
	TLS *tls.Config
	// Dial, when set, makes the connections instead, as to a node in the same
	// process; then URL and DataDir are not needed.
	Dial func(context.Context) (net.Conn, error)
	// Store picks one of the node's stores by id or name; empty means its default.
	Store string
	// HTTP1 speaks HTTP/1.1, for proxies that know nothing newer.
	HTTP1 bool
}

// Client is a connection to one node. Close it when done.
type Client struct {
	where     string // for messages: the address as the user knows it
	dataDir   string
	store     string
	transport *http.Transport

	node     pbconnect.NodeServiceClient
	stores   pbconnect.StoreServiceClient
	topics   pbconnect.TopicServiceClient
	stranded pbconnect.StrandedServiceClient
	logs     pbconnect.LogServiceClient
	groups   pbconnect.GroupServiceClient
	proofs   pbconnect.ProofServiceClient
	keys     pbconnect.KeyServiceClient
	peers    pbconnect.PeerServiceClient
}

// Dial prepares a client; the connection is made by the first call. With
// Options.DataDir it fails with kind Unavailable when no node runs on that
// directory.
func Dial(o Options) (*Client, error) {
	if o.Dial != nil && o.URL == "" && o.DataDir == "" {
		o.URL = "http://lattice"
	}
	if (o.DataDir == "") == (o.URL == "") {
		return nil, lattice.E(lattice.Invalid, errors.New("dial: give a data directory or a URL, and not both"))
	}
	c := &Client{store: o.Store}
	target := o.URL
	if o.DataDir != "" {
		dir, err := filepath.Abs(o.DataDir)
		if err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("dial: %w", err))
		}
		info, err := ReadNodeInfo(dir)
		if err != nil {
			return nil, err
		}
		c.dataDir = dir
		if info.Socket != "" {
			target = "unix://" + info.Socket
		} else {
			target = "http://" + info.HTTP
		}
	}
	base, err := c.connectTo(target, o)
	if err != nil {
		return nil, err
	}
	c.services(base, o.Token)
	return c, nil
}

// connectTo sets up the transport and returns the base URL for requests.
func (c *Client) connectTo(target string, o Options) (string, error) {
	u, err := url.Parse(target)
	if err != nil {
		return "", lattice.E(lattice.Invalid, fmt.Errorf("dial: %w", err))
	}
	var d net.Dialer
	c.where = target
	c.transport = &http.Transport{
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{MaxReadFrameSize: 1 << 20},
		TLSClientConfig:     o.TLS,
		DialContext:         d.DialContext,
		DisableCompression:  true,
		ReadBufferSize:      64 << 10,
		WriteBufferSize:     64 << 10,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
	}
	switch u.Scheme {
	case "unix":
		socket := u.Path
		c.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", socket)
		}
		u = &url.URL{Scheme: "http", Host: "lattice"}
		c.transport.Protocols.SetUnencryptedHTTP2(!o.HTTP1)
	case "http":
		c.transport.Proxy = http.ProxyFromEnvironment
		c.transport.Protocols.SetUnencryptedHTTP2(!o.HTTP1)
	case "https":
		c.transport.Proxy = http.ProxyFromEnvironment
		c.transport.Protocols.SetHTTP2(!o.HTTP1)
	default:
		return "", lattice.E(lattice.Invalid, fmt.Errorf("dial %q: want a URL that begins with http://, https:// or unix://", target))
	}
	if o.Dial != nil {
		c.transport.Proxy = nil
		c.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) }
	}
	c.transport.Protocols.SetHTTP1(o.HTTP1 || u.Scheme == "https")
	return strings.TrimSuffix(u.String(), "/"), nil
}

func (c *Client) services(base, token string) {
	hc := &http.Client{Transport: &authorized{next: c.transport, token: token}}
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(maxMessage),
		// Batches are compressed by their producers; a second time costs and gains nothing.
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithInterceptors(failures{c}),
	}
	c.node = pbconnect.NewNodeServiceClient(hc, base, opts...)
	c.stores = pbconnect.NewStoreServiceClient(hc, base, opts...)
	c.topics = pbconnect.NewTopicServiceClient(hc, base, opts...)
	c.stranded = pbconnect.NewStrandedServiceClient(hc, base, opts...)
	c.logs = pbconnect.NewLogServiceClient(hc, base, opts...)
	c.groups = pbconnect.NewGroupServiceClient(hc, base, opts...)
	c.proofs = pbconnect.NewProofServiceClient(hc, base, opts...)
	c.keys = pbconnect.NewKeyServiceClient(hc, base, opts...)
	c.peers = pbconnect.NewPeerServiceClient(hc, base, opts...)
}

// Close lets go of idle connections. Producers and consumers made from the
// client are closed by their own Close.
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// authorized adds the token to each request.
type authorized struct {
	next  http.RoundTripper
	token string
}

func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.next.RoundTrip(r)
}
