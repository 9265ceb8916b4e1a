package ask

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

var (
	// webPorts are those of an entry that names none; 0 is a request that names none.
	webPorts  = []uint16{0, 80, 443}
	httpsPort = []uint16{0, 443} // of a preset's
)

// host is where a request wants to go.
type host struct {
	name string // in lower case, or an address in its usual form; "" if it cannot be told
	port uint16 // 0 if there is none
}

// parseHost reads a host or an address, with a port or without.
func parseHost(text string) host {
	var h host
	name, port, colon := text, "", false
	switch rest, bracket := strings.CutPrefix(text, "["); {
	case bracket:
		if name, port, colon = strings.Cut(rest, "]"); !colon {
			return host{}
		}
		if port, colon = strings.CutPrefix(port, ":"); !colon && port != "" {
			return host{}
		}
	case strings.Count(text, ":") == 1:
		name, port, colon = strings.Cut(text, ":")
	}
	if colon {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return host{}
		}
		h.port = uint16(n)
	}
	if addr, err := netip.ParseAddr(name); err == nil && addr.Zone() == "" {
		h.name = addr.Unmap().String()
		return h
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if last := name[strings.LastIndexByte(name, '.')+1:]; last == "" || last[0] >= '0' && last[0] <= '9' {
		return host{} // a resolver may take 127.1 or 0x7f000001 for an address
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return host{}
		}
	}
	h.name = name
	return h
}

// matches reports whether an entry as of job.Spec.Network, or *, covers the host. One
// without a port covers these ports, or any if it is not to be exact.
func (h host) matches(entry string, exact bool, ports []uint16) bool {
	if entry == "*" {
		return true
	}
	domain, below := strings.CutPrefix(entry, "*.")
	want := parseHost(domain)
	switch {
	case h.name == "" || want.name == "":
		return false
	case below && !strings.HasSuffix(h.name, "."+want.name), !below && h.name != want.name:
		return false
	case want.port == h.port && h.port != 0:
		return true
	case want.port == 0:
		return !exact || slices.Contains(ports, h.port)
	}
	return !exact && h.port == 0 && slices.Contains(ports, want.port)
}
