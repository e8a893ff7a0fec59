//go:build !linux

package redis

import (
	"errors"
	"net"
)

// poller does not exist here: every connection has a goroutine.
type poller struct{}

type socket int

const noSocket socket = -1

var errAgain = errors.ErrUnsupported

func newPoller() (*poller, error)                   { return nil, errors.ErrUnsupported }
func (*poller) add(socket) error                    { return errors.ErrUnsupported }
func (*poller) remove(socket)                       {}
func (*poller) wait(bool, func(socket, bool)) error { return errors.ErrUnsupported }
func (*poller) wakeUp()                             {}
func (*poller) close()                              {}
func take(net.Conn) (socket, error)                 { return noSocket, errors.ErrUnsupported }
func (socket) conn() (net.Conn, error)              { return nil, errors.ErrUnsupported }
func (socket) read([]byte) (int, error)             { return 0, errors.ErrUnsupported }
func (socket) write([]byte) (int, error)            { return 0, errors.ErrUnsupported }
func (socket) close()                               {}
