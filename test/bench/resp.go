package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// resp is a connection that speaks RESP2. One goroutine writes, one reads.
type resp struct {
	nc net.Conn
	r  *bufio.Reader
	w  *bufio.Writer
}

// reply is an answer: text of a string or number, or a list.
type reply struct {
	text string
	list []reply
}

func dialRESP(port int) (*resp, error) {
	nc, err := net.Dial("tcp", address(port))
	if err != nil {
		return nil, err
	}
	return &resp{nc, bufio.NewReaderSize(nc, 256<<10), bufio.NewWriterSize(nc, 256<<10)}, nil
}

func (c *resp) close() { _ = c.nc.Close() }

// write queues a command.
func (c *resp) write(args ...string) {
	fmt.Fprintf(c.w, "*%d\r\n", len(args))
	for _, a := range args {
		c.w.WriteByte('$')
		c.w.WriteString(strconv.Itoa(len(a)))
		c.w.WriteString("\r\n")
		c.w.WriteString(a)
		c.w.WriteString("\r\n")
	}
}

func (c *resp) flush() error { return c.w.Flush() } // remembers the first error of write

// do sends one command and returns its answer.
func (c *resp) do(args ...string) (reply, error) {
	c.write(args...)
	if err := c.flush(); err != nil {
		return reply{}, err
	}
	return c.read()
}

// read returns the next answer; an error that the server answers is an error.
func (c *resp) read() (reply, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return reply{}, err
	}
	if len(line) < 3 {
		return reply{}, fmt.Errorf("redis: a line %q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+', ':':
		return reply{text: rest}, nil
	case '-':
		return reply{}, errors.New("redis: " + rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n > 64<<20 {
		return reply{}, fmt.Errorf("redis: a line %q", line)
	}
	if n < 0 {
		return reply{}, nil // null
	}
	switch kind {
	case '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return reply{}, err
		}
		return reply{text: string(b[:n])}, nil
	case '*':
		r := reply{list: make([]reply, n)}
		for i := range r.list {
			if r.list[i], err = c.read(); err != nil {
				return reply{}, err
			}
		}
		return r, nil
	}
	return reply{}, fmt.Errorf("redis: a line %q", line)
}
