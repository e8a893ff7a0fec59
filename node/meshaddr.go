package node

import (
	"fmt"
	"net"
	"strings"
)

// mesh checks the addresses of the mesh.
func (v *problems) mesh(m Mesh) {
	for key, text := range map[string]string{"mesh.listen": m.Listen, "mesh.announce": m.Announce} {
		if _, err := meshAddresses(text); err != nil {
			v.add(key, "%w", err)
		}
	}
	if m.Listen == "" && m.Announce != "" {
		v.add("mesh.announce", "there is no mesh listener to announce")
	}
}

// meshAddresses returns the multiaddrs that a setting names. A host and a port stand
// for TCP there.
func meshAddresses(text string) ([]string, error) {
	var all []string
	for _, a := range strings.Split(text, ",") {
		a = strings.TrimSpace(a)
		switch {
		case a == "":
			continue
		case !strings.HasPrefix(a, "/"):
			if err := checkAddress(a, 0); err != nil {
				return nil, err
			}
			a = multiaddr(a)
		case strings.Count(a, "/") < 4: // the transport knows the rest
			return nil, fmt.Errorf("%q is no multiaddr: it looks like /ip4/192.0.2.1/tcp/7946", a)
		}
		all = append(all, a)
	}
	return all, nil
}

// multiaddr returns the multiaddr of a host:port that checkAddress accepts.
func multiaddr(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	switch {
	case host == "":
		return "/ip4/0.0.0.0/tcp/" + port
	case ip == nil:
		return "/dns/" + host + "/tcp/" + port
	case ip.To4() != nil:
		return "/ip4/" + ip.String() + "/tcp/" + port
	}
	return "/ip6/" + ip.String() + "/tcp/" + port
}
