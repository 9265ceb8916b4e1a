package proc

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// ConnectionUser returns the user of the socket that is connected from one address to another,
// both of this host and network namespace; false if there is none (any more).
//
// The tables are those of proc_pid_net(5): an address is written as 32-bit words in the
// byte order of the host. A socket of IPv6 can be connected to an address of IPv4.
func ConnectionUser(from, to netip.AddrPort) (uid uint32, ok bool) {
	for _, table := range []struct {
		path string
		name func(netip.AddrPort) string
	}{{"/proc/net/tcp", tcpName}, {"/proc/net/tcp6", tcp6Name}} {
		local, remote := table.name(from), table.name(to)
		text, err := os.ReadFile(table.path)
		if err != nil || local == "" || remote == "" {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, local) {
				continue
			}
			f := strings.Fields(line)
			if len(f) < 8 || f[1] != local || f[2] != remote {
				continue
			}
			if n, err := strconv.ParseUint(f[7], 10, 32); err == nil {
				return uint32(n), true
			}
		}
	}
	return 0, false
}

func tcpName(a netip.AddrPort) string {
	ip := a.Addr().Unmap()
	if !ip.Is4() {
		return ""
	}
	b := ip.As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), a.Port())
}

func tcp6Name(a netip.AddrPort) string {
	b := a.Addr().As16()
	var words strings.Builder
	for w := range 4 {
		fmt.Fprintf(&words, "%08X", binary.NativeEndian.Uint32(b[4*w:]))
	}
	return fmt.Sprintf("%s:%04X", &words, a.Port())
}
