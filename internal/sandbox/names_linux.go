//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// detail says in words what was refused; "" where the call says all.
func detail(call string, args [6]uint64) string {
	switch call {
	case "socket":
		return familyName(args[0]) + " " + socketTypeName(args[1])
	case "socketpair":
		return familyName(args[0]) + " " + socketTypeName(args[1])
	case "ioctl":
		if uint32(args[1]) == tiocLinux {
			return "TIOCLINUX"
		}
		return "TIOCSTI"
	case "setsockopt":
		return fmt.Sprintf("level %d, option %d", uint32(args[1]), uint32(args[2]))
	case "sendto", "sendmsg", "sendmmsg":
		return "MSG_FASTOPEN"
	case "ptrace":
		return fmt.Sprintf("request %#x", uint32(args[0]))
	case "chmod", "fchmod", "fchmodat", "fchmodat2", "mknod", "mknodat", "open", "openat", "creat":
		return "a file with setuid or setgid"
	}
	return ""
}

func familyName(family uint64) string {
	switch uint32(family) {
	case unix.AF_UNIX:
		return "AF_UNIX"
	case unix.AF_INET:
		return "AF_INET"
	case unix.AF_INET6:
		return "AF_INET6"
	case unix.AF_NETLINK:
		return "AF_NETLINK"
	case unix.AF_PACKET:
		return "AF_PACKET"
	case unix.AF_VSOCK:
		return "AF_VSOCK"
	}
	return strconv.FormatUint(uint64(uint32(family)), 10)
}

func socketTypeName(kind uint64) string {
	switch kind & socketType {
	case unix.SOCK_STREAM:
		return "SOCK_STREAM"
	case unix.SOCK_DGRAM:
		return "SOCK_DGRAM"
	case unix.SOCK_RAW:
		return "SOCK_RAW"
	case unix.SOCK_SEQPACKET:
		return "SOCK_SEQPACKET"
	}
	return strconv.FormatUint(kind&socketType, 10)
}
