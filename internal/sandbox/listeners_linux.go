//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// serving is a TCP socket that listens. Inodes of sockets come round after 4 billion, which a run has time to make, so
// only together with the address do they say which socket is meant.
type serving struct {
	addr  netip.AddrPort
	inode uint64
}

// takes says whether a connection to addr may come to l. A wildcard of IPv6 may take IPv4 as well.
func (l serving) takes(addr netip.AddrPort) bool {
	at := l.addr.Addr().Unmap()
	return l.addr.Port() == addr.Port() && (at == addr.Addr() || at.IsUnspecified() && (at.Is6() || addr.Addr().Is4()))
}

// listeners returns the TCP sockets that listen in the network of a process. A file that cannot be read has none.
func listeners(pid int) []serving {
	var list []serving
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/net/" + name)
		if err != nil {
			continue
		}
		list = append(list, parseListeners(f)...)
		_ = f.Close()
	}
	return list
}

// parseListeners reads /proc/net/tcp or tcp6 as far as sockets listen, which are the first. See proc_pid_net(5): local
// address, remote address, state and, after some more, inode. An address is its 32 bit words as this machine has them.
func parseListeners(r io.Reader) []serving {
	const listening = "0A"
	var list []serving
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != listening {
			break
		}
		host, port, _ := strings.Cut(f[1], ":")
		raw, err := hex.DecodeString(host)
		number, perr := strconv.ParseUint(port, 16, 16)
		inode, ierr := strconv.ParseUint(f[9], 10, 64)
		for i := 0; i+4 <= len(raw); i += 4 {
			slices.Reverse(raw[i : i+4])
		}
		addr, ok := netip.AddrFromSlice(raw)
		if errors.Join(err, perr, ierr) == nil && ok {
			list = append(list, serving{netip.AddrPortFrom(addr, uint16(number)), inode})
		}
	}
	return list
}
