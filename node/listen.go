package node

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	lattice "github.com/lattice-log/lattice"
)

// socketName is the API's socket in the data directory.
const socketName = "api.sock"

// maxSocketPath is what a socket's address holds on every Unix, in bytes.
const maxSocketPath = 103

// listeners are the bound addresses. A nil listener is off.
type listeners struct {
	kafka, redis net.Listener
	http, socket net.Listener
	socketPath   string
	socketDir    string      // made for the socket alone; removed at the end
	tls          *tls.Config // nil: plain
	tokens       []string    // of the HTTP listener
}

// listen binds everything, so that a taken address is known before the store is
// touched. Kinds Unavailable, Invalid.
func listen(cfg Config) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if cfg.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLS.Cert, cfg.TLS.Key)
		if err != nil {
			return l, lattice.E(lattice.Invalid, fmt.Errorf("tls.cert, tls.key: %w", err))
		}
		l.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if l.tokens, err = readTokens(cfg.HTTP.TokenFile); err != nil {
		return l, err
	}
	if err = l.bind(cfg); err != nil {
		return l, err
	}
	return l, l.bindSocket(cfg.Data)
}

// TakenError is why a node does not start where other processes have its
// addresses. It names all of them, so that one look is enough.
type TakenError struct {
	Listeners []TakenListener
}

// TakenListener is a listener whose address another process has.
type TakenListener struct {
	Key     string // of its setting, such as "redis.listen"
	Address string // host:port
}

func (e *TakenError) Error() string {
	lines := make([]string, len(e.Listeners))
	for i, l := range e.Listeners {
		lines[i] = fmt.Sprintf("%s: %s is taken by another process", l.Key, l.Address)
	}
	return strings.Join(lines, "\n")
}

// bind binds the addresses of the configuration.
func (l *listeners) bind(cfg Config) error {
	var taken TakenError
	for _, b := range []struct {
		key, addr string
		to        *net.Listener
	}{
		{"kafka.listen", cfg.Kafka.Listen, &l.kafka},
		{"redis.listen", cfg.Redis.Listen, &l.redis},
		{"http.listen", cfg.HTTP.Listen, &l.http},
	} {
		if b.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", b.addr)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			taken.Listeners = append(taken.Listeners, TakenListener{b.key, b.addr})
		case err != nil:
			return lattice.E(lattice.Unavailable, fmt.Errorf("%s: %w", b.key, err))
		default:
			*b.to = ln
		}
	}
	if len(taken.Listeners) > 0 {
		return lattice.E(lattice.Unavailable, &taken)
	}
	return nil
}

// bindSocket makes the socket that only the owner of the data directory can
// use. Where the directory's path is too long for a socket's address, the
// socket goes into a directory of its own, and node.json says where.
func (l *listeners) bindSocket(data string) error {
	dir, err := filepath.Abs(data)
	if err != nil {
		return lattice.E(lattice.Invalid, fmt.Errorf("data: %w", err))
	}
	l.socketPath = filepath.Join(dir, socketName)
	if len(l.socketPath) > maxSocketPath {
		if l.socketDir, err = os.MkdirTemp("", "lattice-"); err != nil {
			return lattice.E(lattice.Storage, fmt.Errorf("socket: %w", err))
		}
		l.socketPath = filepath.Join(l.socketDir, socketName)
	}
	// The lock is ours, so a socket that is there belongs to nobody.
	if err := os.Remove(l.socketPath); err != nil && !os.IsNotExist(err) {
		return lattice.E(lattice.Storage, fmt.Errorf("socket: %w", err))
	}
	if l.socket, err = net.Listen("unix", l.socketPath); err != nil {
		return lattice.E(lattice.Unavailable, fmt.Errorf("socket: %w", err))
	}
	if err := os.Chmod(l.socketPath, 0o600); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("socket: %w", err))
	}
	return nil
}

// close lets go of all addresses. Those that were served are closed already.
func (l *listeners) close() {
	for _, ln := range []net.Listener{l.kafka, l.redis, l.http, l.socket} {
		if ln != nil {
			ln.Close()
		}
	}
	if l.socketDir != "" {
		os.RemoveAll(l.socketDir)
	}
}

// readTokens reads one token a line; blank lines and lines that begin with #
// do not count. Kind Invalid: the file has none, or others can read it.
func readTokens(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	bad := func(err error) error { return lattice.E(lattice.Invalid, fmt.Errorf("http.token_file: %w", err)) }
	f, err := os.Open(path)
	if err != nil {
		return nil, bad(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, bad(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, bad(fmt.Errorf("%s can be read by others: chmod 600 %s", path, path))
	}
	var tokens []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if t := strings.TrimSpace(lines.Text()); t != "" && t[0] != '#' {
			tokens = append(tokens, t)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, bad(err)
	}
	if len(tokens) == 0 {
		return nil, bad(fmt.Errorf("%s holds no token", path))
	}
	return tokens, nil
}

// splitAddress splits a host:port that Validate has accepted.
func splitAddress(addr string) (string, int32) {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return host, int32(n)
}

func processID() int { return os.Getpid() }
