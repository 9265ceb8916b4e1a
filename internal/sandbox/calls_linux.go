//go:build amd64 || arm64

package sandbox

import "golang.org/x/sys/unix"

// verdict is what becomes of a call.
type verdict int

const (
	absent  verdict = iota // answered with the rule's errno as if the kernel did not have it: programs fall back to others
	refused                // EPERM; told where there is somebody to tell
	decided                // by the notifier, with its arguments
	allowed                // whatever later rules say; of a report only
)

// rule is for calls of this number whose arguments meet all conditions. The first rule that holds decides; a call for
// which none does is allowed.
type rule struct {
	nr      uint32
	name    string
	when    []condition
	verdict verdict
	errno   unix.Errno // of absent
	hostile bool       // see Denial
	unasked bool       // only where the notifier cannot be asked
}

// condition looks at half of an argument, since that is what a filter can load. It holds if value is the argument under
// the mask, or with not, if it is not.
type condition struct {
	arg   int
	high  bool // the upper 32 bits
	mask  uint32
	value uint32
	not   bool
}

const all = ^uint32(0)

func is(arg int, value uint32) condition { return condition{arg: arg, mask: all, value: value} }
func not(arg int, value uint32) condition {
	return condition{arg: arg, mask: all, value: value, not: true}
}
func masked(arg int, mask, v uint32) condition { return condition{arg: arg, mask: mask, value: v} }
func unmasked(arg int, mask, v uint32) condition {
	return condition{arg: arg, mask: mask, value: v, not: true}
}
func anyOf(arg int, mask uint32) condition { return condition{arg: arg, mask: mask, not: true} }
func high(arg int) condition               { return condition{arg: arg, high: true, mask: all, not: true} }

const (
	// newNamespaces are the flags of clone(2) and unshare(2) for namespaces. CLONE_NEWTIME is left out: in clone's flags it
	// is a part of a signal's number.
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

	// addrNoRandomize is a personality that sanitizers of threads start themselves again with.
	addrNoRandomize = 0x40000

	socketType = 0xf // of socket(2)'s second argument; the rest are flags
	setID      = unix.S_ISUID | unix.S_ISGID
)

// rules are the calls that a run may not make, or only by the notifier's leave.
func (p *Policy) rules() []rule {
	var list []rule
	add := func(v verdict, hostile bool, errno unix.Errno, nr uint32, name string, when ...condition) {
		list = append(list, rule{nr: nr, name: name, when: when, verdict: v, errno: errno, hostile: hostile})
	}
	refuse := func(nr uint32, name string, when ...condition) { add(refused, false, 0, nr, name, when...) }
	attack := func(nr uint32, name string, when ...condition) { add(refused, true, 0, nr, name, when...) }
	missing := func(nr uint32, name string, errno unix.Errno, when ...condition) {
		add(absent, false, errno, nr, name, when...)
	}

	// Other processes, and what the kernel keeps for all.
	attack(unix.SYS_PTRACE, "ptrace", is(0, unix.PTRACE_ATTACH))
	attack(unix.SYS_PTRACE, "ptrace", is(0, unix.PTRACE_SEIZE))
	refuse(unix.SYS_PTRACE, "ptrace")
	attack(unix.SYS_PROCESS_VM_READV, "process_vm_readv")
	attack(unix.SYS_PROCESS_VM_WRITEV, "process_vm_writev")
	refuse(unix.SYS_KCMP, "kcmp")
	refuse(unix.SYS_PRLIMIT64, "prlimit64", not(0, 0), anyOf(2, all))
	refuse(unix.SYS_PRLIMIT64, "prlimit64", not(0, 0), high(2))
	// By this limit a scheduler knows what an earlier one has left (proc.MarkDescendants).
	refuse(unix.SYS_PRLIMIT64, "prlimit64", is(1, unix.RLIMIT_LOCKS), anyOf(2, all))
	refuse(unix.SYS_PRLIMIT64, "prlimit64", is(1, unix.RLIMIT_LOCKS), high(2))
	refuse(unix.SYS_SETRLIMIT, "setrlimit", is(0, unix.RLIMIT_LOCKS))
	refuse(unix.SYS_SETPRIORITY, "setpriority", not(1, 0))
	attack(unix.SYS_BPF, "bpf")
	refuse(unix.SYS_PERF_EVENT_OPEN, "perf_event_open")
	refuse(unix.SYS_USERFAULTFD, "userfaultfd")
	refuse(unix.SYS_FANOTIFY_INIT, "fanotify_init")
	refuse(unix.SYS_MQ_OPEN, "mq_open")
	attack(unix.SYS_KEYCTL, "keyctl")
	attack(unix.SYS_ADD_KEY, "add_key")
	attack(unix.SYS_REQUEST_KEY, "request_key")
	refuse(unix.SYS_PERSONALITY, "personality", not(0, all), anyOf(0, ^uint32(addrNoRandomize)))
	refuse(unix.SYS_LOOKUP_DCOOKIE, "lookup_dcookie")
	refuse(unix.SYS_NFSSERVCTL, "nfsservctl")
	refuse(unix.SYS_SYSLOG, "syslog")
	attack(unix.SYS_KEXEC_LOAD, "kexec_load")
	attack(unix.SYS_KEXEC_FILE_LOAD, "kexec_file_load")
	attack(unix.SYS_INIT_MODULE, "init_module")
	attack(unix.SYS_FINIT_MODULE, "finit_module")
	attack(unix.SYS_DELETE_MODULE, "delete_module")
	refuse(unix.SYS_REBOOT, "reboot")
	refuse(unix.SYS_SWAPON, "swapon")
	refuse(unix.SYS_SWAPOFF, "swapoff")
	refuse(unix.SYS_ACCT, "acct")
	refuse(unix.SYS_QUOTACTL, "quotactl")
	refuse(unix.SYS_QUOTACTL_FD, "quotactl_fd")
	refuse(unix.SYS_SETTIMEOFDAY, "settimeofday")
	refuse(unix.SYS_CLOCK_SETTIME, "clock_settime")
	refuse(unix.SYS_SETHOSTNAME, "sethostname")
	refuse(unix.SYS_SETDOMAINNAME, "setdomainname")
	refuse(unix.SYS_VHANGUP, "vhangup")

	// What changes which files there are, and files by number instead of by path.
	attack(unix.SYS_MOUNT, "mount")
	attack(unix.SYS_UMOUNT2, "umount2")
	attack(unix.SYS_MOVE_MOUNT, "move_mount")
	attack(unix.SYS_FSOPEN, "fsopen")
	attack(unix.SYS_FSCONFIG, "fsconfig")
	attack(unix.SYS_FSMOUNT, "fsmount")
	attack(unix.SYS_FSPICK, "fspick")
	attack(unix.SYS_OPEN_TREE, "open_tree")
	attack(unix.SYS_MOUNT_SETATTR, "mount_setattr")
	attack(unix.SYS_PIVOT_ROOT, "pivot_root")
	attack(unix.SYS_CHROOT, "chroot")
	attack(unix.SYS_OPEN_BY_HANDLE_AT, "open_by_handle_at")

	// Namespaces: a run has no right in one that it could not have outside, but each is more of the kernel to attack.
	attack(unix.SYS_SETNS, "setns")
	refuse(unix.SYS_UNSHARE, "unshare", anyOf(0, newNamespaces|unix.CLONE_NEWTIME))
	refuse(unix.SYS_CLONE, "clone", anyOf(0, newNamespaces))
	missing(unix.SYS_CLONE3, "clone3", unix.ENOSYS) // its flags stand in memory; libraries fall back to clone

	// Files that give their user's rights to whoever executes them. openat2's mode stands in memory.
	const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	refuse(unix.SYS_FCHMOD, "fchmod", anyOf(1, setID))
	refuse(unix.SYS_FCHMODAT, "fchmodat", anyOf(2, setID))
	refuse(unix.SYS_FCHMODAT2, "fchmodat2", anyOf(2, setID))
	refuse(unix.SYS_MKNODAT, "mknodat", anyOf(2, setID))
	refuse(unix.SYS_OPENAT, "openat", anyOf(2, creates), anyOf(3, setID))
	missing(unix.SYS_OPENAT2, "openat2", unix.ENOSYS)

	// io_uring makes calls that no filter sees.
	missing(unix.SYS_IO_URING_SETUP, "io_uring_setup", unix.ENOSYS)
	missing(unix.SYS_IO_URING_ENTER, "io_uring_enter", unix.ENOSYS)
	missing(unix.SYS_IO_URING_REGISTER, "io_uring_register", unix.ENOSYS)

	// Input that a terminal takes as typed by its user.
	attack(unix.SYS_IOCTL, "ioctl", is(1, unix.TIOCSTI))
	attack(unix.SYS_IOCTL, "ioctl", is(1, tiocLinux))

	list = append(list, oldRules()...)
	return append(list, p.socketRules()...)
}

// tiocLinux is TIOCLINUX, which can select and paste on a virtual console.
const tiocLinux = 0x541c

func socket(v verdict, hostile bool, errno unix.Errno, when ...condition) rule {
	return rule{nr: unix.SYS_SOCKET, name: "socket", when: when, verdict: v, errno: errno, hostile: hostile}
}

func unasked(r rule) rule {
	r.unasked = true
	return r
}

// ownSocketRules are those of a run that has a network of its own: nobody else is there, so they refuse only kinds of sockets
// that no program needs, and those that know no network.
func ownSocketRules() []rule {
	list := []rule{
		socket(refused, true, 0, is(0, unix.AF_PACKET)),
		socket(refused, true, 0, is(0, unix.AF_VSOCK)),
		socket(refused, false, 0, is(0, unix.AF_NETLINK), not(2, unix.NETLINK_ROUTE)),
		socket(refused, false, 0, not(0, unix.AF_UNIX), not(0, unix.AF_INET), not(0, unix.AF_INET6), not(0, unix.AF_NETLINK)),
		{nr: unix.SYS_SOCKETPAIR, name: "socketpair", verdict: refused, when: []condition{not(0, unix.AF_UNIX)}},
	}
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		list = append(list, socket(absent, false, unix.EPROTONOSUPPORT, is(0, family), masked(1, socketType, unix.SOCK_STREAM), is(2, unix.IPPROTO_MPTCP)),
			socket(refused, true, 0, is(0, family), masked(1, socketType, unix.SOCK_RAW)),
			socket(refused, false, 0, is(0, family), unmasked(1, socketType, unix.SOCK_STREAM), unmasked(1, socketType, unix.SOCK_DGRAM)))
	}
	return list
}

// socketRules are those for sockets. NETLINK_ROUTE is how getifaddrs(3) and if_nametoindex(3) ask for interfaces.
func (p *Policy) socketRules() []rule {
	if p.ownNetwork() {
		return ownSocketRules()
	}
	var list []rule
	inet := []uint32{unix.AF_INET, unix.AF_INET6}
	for _, family := range inet {
		stream := masked(1, socketType, unix.SOCK_STREAM)
		list = append(list,
			// A library that asks for it uses TCP instead, as it does on kernels without.
			socket(absent, false, unix.EPROTONOSUPPORT, is(0, family), stream, is(2, unix.IPPROTO_MPTCP)),
			socket(refused, false, 0, is(0, family), stream, not(2, 0), not(2, unix.IPPROTO_TCP)),
			socket(refused, true, 0, is(0, family), masked(1, socketType, unix.SOCK_RAW)))
		if p.FullNetwork {
			list = append(list, socket(refused, false, 0, is(0, family), unmasked(1, socketType, unix.SOCK_STREAM), unmasked(1, socketType, unix.SOCK_DGRAM)),
				socket(refused, false, 0, is(0, family), masked(1, socketType, unix.SOCK_DGRAM), not(2, 0), not(2, unix.IPPROTO_UDP)))
		} else {
			list = append(list, socket(refused, false, 0, is(0, family), unmasked(1, socketType, unix.SOCK_STREAM)))
		}
	}
	list = append(list,
		socket(refused, false, 0, is(0, unix.AF_NETLINK), not(2, unix.NETLINK_ROUTE)),
		socket(refused, true, 0, is(0, unix.AF_PACKET)),
		socket(refused, true, 0, is(0, unix.AF_VSOCK)),
		socket(refused, false, 0, not(0, unix.AF_INET), not(0, unix.AF_INET6), not(0, unix.AF_NETLINK), not(0, unix.AF_UNIX)),
		// One of datagrams can be sent to any path. Where the others may be connected to is decided.
		socket(refused, false, 0, is(0, unix.AF_UNIX), unmasked(1, socketType, unix.SOCK_STREAM), unmasked(1, socketType, unix.SOCK_SEQPACKET)),
		unasked(socket(refused, false, 0, is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_STREAM))),
		unasked(socket(refused, false, 0, is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_SEQPACKET))),
		// A pair of datagram sockets can be sent to any path, and so is no pair.
		rule{nr: unix.SYS_SOCKETPAIR, name: "socketpair", verdict: refused, when: []condition{not(0, unix.AF_UNIX)}},
		rule{nr: unix.SYS_SOCKETPAIR, name: "socketpair", verdict: refused, when: []condition{
			is(0, unix.AF_UNIX), unmasked(1, socketType, unix.SOCK_STREAM), unmasked(1, socketType, unix.SOCK_SEQPACKET)}},
		rule{nr: unix.SYS_CONNECT, name: "connect", verdict: decided},
		rule{nr: unix.SYS_LISTEN, name: "listen", verdict: decided})
	if p.FullNetwork {
		return list
	}
	// A connection made by sending would be asked of nobody.
	fastOpen := func(nr uint32, name string, flags int) rule {
		return rule{nr: nr, name: name, verdict: refused, when: []condition{anyOf(flags, unix.MSG_FASTOPEN)}}
	}
	// A route or a device of the run's own would take its packets elsewhere than to the address of its connection.
	option := func(v verdict, hostile bool, level, option uint32) rule {
		return rule{nr: unix.SYS_SETSOCKOPT, name: "setsockopt", verdict: v, errno: unix.ENOPROTOOPT, hostile: hostile, when: []condition{is(1, level), is(2, option)}}
	}
	return append(list,
		option(refused, true, unix.IPPROTO_IP, unix.IP_OPTIONS),
		option(refused, true, unix.IPPROTO_IPV6, unix.IPV6_RTHDR),
		option(refused, true, unix.IPPROTO_IPV6, unix.IPV6_2292PKTOPTIONS),
		option(refused, false, unix.SOL_SOCKET, unix.SO_BINDTODEVICE),
		option(refused, false, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX),
		option(refused, false, unix.IPPROTO_IP, unix.IP_UNICAST_IF),
		option(refused, false, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_IF),
		option(absent, false, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT),
		fastOpen(unix.SYS_SENDTO, "sendto", 3), fastOpen(unix.SYS_SENDMSG, "sendmsg", 2), fastOpen(unix.SYS_SENDMMSG, "sendmmsg", 3))
}
