package access

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// splitHost takes a Host header apart; port is "" where it has none.
func splitHost(text string) (name, port string, ok bool) {
	if strings.HasSuffix(text, "]") || !strings.Contains(text, ":") {
		name = text
	} else {
		var err error
		if name, port, err = net.SplitHostPort(text); err != nil || port == "" {
			return "", "", false
		}
		if strings.HasPrefix(text, "[") {
			name = "[" + name + "]"
		}
	}
	if inner, is6 := strings.CutPrefix(name, "["); is6 {
		a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !a.Is6() || a.Zone() != "" || !strings.HasSuffix(name, "]") {
			return "", "", false
		}
		return "[" + a.String() + "]", port, true
	}
	return strings.ToLower(name), port, name != "" && !strings.ContainsAny(name, ":[]/@ ")
}

// localAddr is the address of this end of the connection.
func localAddr(ctx context.Context) netip.AddrPort {
	if a, ok := ctx.Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		at := a.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	}
	return netip.AddrPort{}
}

// ownHost reports whether the Host header names this scheduler. A page of another
// site, whose name was made to point here, gives itself away by it (DNS rebinding):
// it can neither have loopback's names nor an address as its name.
func ownHost(r *http.Request, door Door, hosts []string) bool {
	if door == Socket {
		return r.Host == "" || r.Host == "scheduler" || r.Host == "localhost"
	}
	name, port, ok := splitHost(r.Host)
	if !ok {
		return false
	}
	if slices.Contains(hosts, name) || port != "" && slices.Contains(hosts, name+":"+port) {
		return true
	}
	if port == "" {
		if port = "80"; r.TLS != nil {
			port = "443"
		}
	}
	local := localAddr(r.Context())
	if !local.IsValid() || port != strconv.Itoa(int(local.Port())) {
		return false
	}
	if name == "localhost" || name == "127.0.0.1" || name == "[::1]" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && addr.Unmap() == local.Addr()
}

// checkHosts reads names that are accepted in Host besides the scheduler's own:
// NAME for any port, or NAME:PORT.
func checkHosts(hosts []string) ([]string, error) {
	list := make([]string, 0, len(hosts))
	for i, h := range hosts {
		name, port, ok := splitHost(h)
		if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
			ok = false
		}
		if !ok || strings.ContainsAny(name, "*?#\\") {
			return nil, fmt.Errorf("hosts[%d] %q is no host name, want NAME or NAME:PORT, e.g. scheduler.example.com", i, h)
		}
		if port != "" {
			name += ":" + port
		}
		list = append(list, name)
	}
	return list, nil
}
