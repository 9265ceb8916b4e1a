//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFiles: what is granted works and nothing else does.
func TestFiles(t *testing.T) {
	p, workspace := typical(t)
	outside := realDir(t)
	secret, home := filepath.Join(outside, "secret"), filepath.Join(outside, "home")
	for _, dir := range []string{home + "/.ssh/keys", home + "/tools", workspace + "/sub"} {
		mustDo(t, os.MkdirAll(dir, 0o755))
	}
	for _, file := range []string{secret, home + "/.ssh/id", home + "/.ssh/keys/public", home + "/.netrc", home + "/tools/lib", workspace + "/file", outside + "/one"} {
		mustDo(t, os.WriteFile(file, []byte("content"), 0o644))
	}
	mustDo(t, os.Symlink(secret, workspace+"/link"))
	p.Read = append(p.Read, home, outside+"/missing")
	p.Hide = append(p.Hide, home+"/.ssh", home+"/.netrc")
	p.Write = append(p.Write, home+"/.ssh/keys", outside+"/one")
	r := startRun(t, p)

	const denied = syscall.EACCES
	r.can("read", workspace+"/file")
	r.can("write", workspace+"/new")
	r.can("append", workspace+"/new")
	r.can("truncate", workspace+"/new")
	r.can("mkdir", workspace+"/dir")
	r.can("rename", workspace+"/new", workspace+"/dir/new")
	r.can("link", workspace+"/file", workspace+"/sub/file")
	r.can("remove", workspace+"/dir/new")
	r.cannot(denied, "read", secret)
	r.cannot(denied, "read", workspace+"/link")
	r.cannot(denied, "read", workspace+"/../"+filepath.Base(workspace)+"/link")
	r.cannot(denied, "read", "/proc/self/root"+secret)
	r.cannot(denied, "write", secret)
	r.cannot(denied, "write", outside+"/new")
	r.cannot(denied, "truncate", secret)
	r.cannot(denied, "remove", secret)
	r.cannot(denied, "mkdir", outside+"/dir")
	r.cannot(denied, "rename", secret, workspace+"/secret")
	r.cannot(syscall.EXDEV, "link", secret, workspace+"/secret")
	r.cannot(denied, "rename", workspace+"/file", outside+"/file")
	r.cannot(denied, "list", outside)

	r.can("read", home+"/tools/lib")
	r.can("list", home+"/tools")
	r.cannot(denied, "write", home+"/tools/lib")
	r.cannot(denied, "write", home+"/tools/new")
	r.cannot(denied, "read", home+"/.ssh/id")
	r.cannot(denied, "list", home+"/.ssh")
	r.cannot(denied, "list", home)
	r.cannot(denied, "read", home+"/.netrc")
	r.can("write", home+"/.ssh/keys/new")
	r.can("read", home+"/.ssh/keys/public")
	r.can("append", outside+"/one")
	r.can("truncate", outside+"/one")
	r.cannot(denied, "remove", outside+"/one")

	r.can("read", "/etc/passwd")
	r.can("list", "/usr/bin")
	r.can("list", "/etc")
	r.can("read", "/proc/self/status")
	r.can("read", "/proc/sys/kernel/ostype")
	r.cannot(denied, "append", "/proc/sys/kernel/core_pattern")
	r.cannot(denied, "append", "/proc/self/uid_map")
	r.cannot(denied, "write", "/etc/sandbox-test")
	r.cannot(denied, "append", "/etc/passwd")
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/urandom"} {
		r.can("device", device)
	}
	r.cannot(syscall.ENOSPC, "device", "/dev/full")
	r.can("terminal")
	r.cannot(denied, "list", "/dev")
	r.cannot(denied, "write", "/dev/shm/sandbox-test")
	if os.Getuid() == 0 {
		r.cannot(denied, "read", "/etc/shadow")
	}
}

// TestHiddenDevice: devices are granted like other files, so they can be hidden.
func TestHiddenDevice(t *testing.T) {
	p, _ := typical(t)
	p.Hide = append(p.Hide, "/dev/pts", "/dev/ptmx")
	r := startRun(t, p)
	r.cannot(syscall.EACCES, "terminal")
	r.cannot(syscall.EACCES, "list", "/dev/pts")
	r.can("device", "/dev/null")
}

// TestWriteMustExist: a folder that is to be written and is not there is a mistake; one that is to be read is none.
func TestWriteMustExist(t *testing.T) {
	p, workspace := typical(t)
	p.Write = append(p.Write, workspace+"/missing")
	if s, err := p.Prepare("/bin/sh", nil); err == nil || !strings.Contains(err.Error(), "sandbox.write") || !strings.Contains(err.Error(), workspace+"/missing") {
		t.Errorf("prepared %v, %v", s, err)
	}
}

// TestOtherProcesses: a run sees neither the scheduler's processes nor another run's, and cannot end them.
func TestOtherProcesses(t *testing.T) {
	p, _ := typical(t)
	other := startRun(t, p)
	r := startRun(t, p)
	for name, pid := range map[string]int{"the parent": os.Getpid(), "another run": other.cmd.Process.Pid} {
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"environ", "maps", "mem", "auxv", "syscall"} {
				path := fmt.Sprintf("/proc/%d/%s", pid, file)
				if _, failure := r.do("read", path); failure != syscall.EACCES.Error() && failure != syscall.EPERM.Error() {
					t.Errorf("read %s: error %q", path, failure)
				}
			}
			for _, path := range []string{"root/etc/passwd", "cwd/doc.go", "fd/0"} {
				r.cannot(syscall.EACCES, "read", fmt.Sprintf("/proc/%d/%s", pid, path))
			}
			if abi, _ := landlockABI(); abi >= 6 {
				r.cannot(syscall.EPERM, "kill", strconv.Itoa(pid), "0")
			}
			r.cannot(syscall.EPERM, "call", number(unix.SYS_PTRACE), number(unix.PTRACE_ATTACH), strconv.Itoa(pid))
			r.told(Denial{Call: "ptrace", Detail: "request 0x10", Hostile: true})
			r.cannot(syscall.EPERM, "call", number(unix.SYS_PRLIMIT64), strconv.Itoa(pid), number(unix.RLIMIT_CORE), "0x400000")
			r.can("call", number(unix.SYS_PRLIMIT64), "0", number(unix.RLIMIT_CORE), "0")
			pidfd := r.can("call", number(unix.SYS_PIDFD_OPEN), strconv.Itoa(pid), "0")
			r.cannot(syscall.EPERM, "call", number(unix.SYS_PIDFD_GETFD), pidfd, "0", "0")
		})
	}
	r.can("kill", strconv.Itoa(r.cmd.Process.Pid), "0")
	other.can("read", "/etc/passwd") // it lives
}

// TestCalls: calls that are refused, what is told of them, and the calls beside them that work.
func TestCalls(t *testing.T) {
	p, workspace := typical(t)
	r := startRun(t, p)
	refusals := []struct {
		denial Denial
		args   []uint64
	}{
		{Denial{Call: "ptrace", Detail: "request 0x0"}, []uint64{unix.SYS_PTRACE, unix.PTRACE_TRACEME}},
		{Denial{Call: "process_vm_readv", Hostile: true}, []uint64{unix.SYS_PROCESS_VM_READV, 1}},
		{Denial{Call: "process_vm_writev", Hostile: true}, []uint64{unix.SYS_PROCESS_VM_WRITEV, 1}},
		{Denial{Call: "mount", Hostile: true}, []uint64{unix.SYS_MOUNT}},
		{Denial{Call: "umount2", Hostile: true}, []uint64{unix.SYS_UMOUNT2}},
		{Denial{Call: "move_mount", Hostile: true}, []uint64{unix.SYS_MOVE_MOUNT}},
		{Denial{Call: "fsopen", Hostile: true}, []uint64{unix.SYS_FSOPEN}},
		{Denial{Call: "open_tree", Hostile: true}, []uint64{unix.SYS_OPEN_TREE}},
		{Denial{Call: "mount_setattr", Hostile: true}, []uint64{unix.SYS_MOUNT_SETATTR}},
		{Denial{Call: "pivot_root", Hostile: true}, []uint64{unix.SYS_PIVOT_ROOT}},
		{Denial{Call: "chroot", Hostile: true}, []uint64{unix.SYS_CHROOT}},
		{Denial{Call: "open_by_handle_at", Hostile: true}, []uint64{unix.SYS_OPEN_BY_HANDLE_AT}},
		{Denial{Call: "setns", Hostile: true}, []uint64{unix.SYS_SETNS, ^uint64(0)}},
		{Denial{Call: "unshare"}, []uint64{unix.SYS_UNSHARE, unix.CLONE_NEWUSER}},
		{Denial{Call: "unshare"}, []uint64{unix.SYS_UNSHARE, unix.CLONE_NEWNET | unix.CLONE_FS}},
		{Denial{Call: "clone"}, []uint64{unix.SYS_CLONE, unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}},
		{Denial{Call: "keyctl", Hostile: true}, []uint64{unix.SYS_KEYCTL}},
		{Denial{Call: "add_key", Hostile: true}, []uint64{unix.SYS_ADD_KEY}},
		{Denial{Call: "request_key", Hostile: true}, []uint64{unix.SYS_REQUEST_KEY}},
		{Denial{Call: "bpf", Hostile: true}, []uint64{unix.SYS_BPF}},
		{Denial{Call: "perf_event_open"}, []uint64{unix.SYS_PERF_EVENT_OPEN}},
		{Denial{Call: "userfaultfd"}, []uint64{unix.SYS_USERFAULTFD}},
		{Denial{Call: "kexec_load", Hostile: true}, []uint64{unix.SYS_KEXEC_LOAD}},
		{Denial{Call: "init_module", Hostile: true}, []uint64{unix.SYS_INIT_MODULE}},
		{Denial{Call: "finit_module", Hostile: true}, []uint64{unix.SYS_FINIT_MODULE}},
		{Denial{Call: "personality"}, []uint64{unix.SYS_PERSONALITY, 0x0400000}},
		{Denial{Call: "setpriority"}, []uint64{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 1, 5}},
		{Denial{Call: "mq_open"}, []uint64{unix.SYS_MQ_OPEN}},
		{Denial{Call: "ioctl", Detail: "TIOCSTI", Hostile: true}, []uint64{unix.SYS_IOCTL, 0, unix.TIOCSTI}},
		{Denial{Call: "ioctl", Detail: "TIOCSTI", Hostile: true}, []uint64{unix.SYS_IOCTL, 0, 0xffffffff00000000 | unix.TIOCSTI}}, // the kernel takes the lower half
		{Denial{Call: "ioctl", Detail: "TIOCLINUX", Hostile: true}, []uint64{unix.SYS_IOCTL, 0, tiocLinux}},
		{Denial{Call: "socket", Detail: "AF_UNIX SOCK_DGRAM"}, []uint64{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM}},
		{Denial{Call: "socket", Detail: "AF_INET SOCK_DGRAM"}, []uint64{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM}},
		{Denial{Call: "socket", Detail: "AF_INET6 SOCK_DGRAM"}, []uint64{unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK}},
		{Denial{Call: "socket", Detail: "AF_INET SOCK_RAW", Hostile: true}, []uint64{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}},
		{Denial{Call: "socket", Detail: "AF_INET6 SOCK_RAW", Hostile: true}, []uint64{unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6}},
		{Denial{Call: "socket", Detail: "AF_INET SOCK_STREAM"}, []uint64{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}},
		{Denial{Call: "socket", Detail: "AF_PACKET SOCK_RAW", Hostile: true}, []uint64{unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW}},
		{Denial{Call: "socket", Detail: "AF_VSOCK SOCK_STREAM", Hostile: true}, []uint64{unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM}},
		{Denial{Call: "socket", Detail: "AF_NETLINK SOCK_RAW"}, []uint64{unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}},
		{Denial{Call: "socket", Detail: "38 SOCK_SEQPACKET"}, []uint64{unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET}},
		{Denial{Call: "socketpair", Detail: "AF_UNIX SOCK_DGRAM"}, []uint64{unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM}},
		{Denial{Call: "sendto", Detail: "MSG_FASTOPEN"}, []uint64{unix.SYS_SENDTO, 0, 0, 0, unix.MSG_FASTOPEN}},
		{Denial{Call: "sendmsg", Detail: "MSG_FASTOPEN"}, []uint64{unix.SYS_SENDMSG, 0, 0, unix.MSG_FASTOPEN | unix.MSG_NOSIGNAL}},
		{Denial{Call: "sendmmsg", Detail: "MSG_FASTOPEN"}, []uint64{unix.SYS_SENDMMSG, 0, 0, 0, unix.MSG_FASTOPEN}},
		{Denial{Call: "setsockopt", Detail: "level 0, option 4", Hostile: true}, []uint64{unix.SYS_SETSOCKOPT, 0, unix.IPPROTO_IP, unix.IP_OPTIONS}},
		{Denial{Call: "setsockopt", Detail: "level 1, option 25"}, []uint64{unix.SYS_SETSOCKOPT, 0, unix.SOL_SOCKET, unix.SO_BINDTODEVICE}},
		{Denial{Call: "setsockopt", Detail: "level 41, option 57", Hostile: true}, []uint64{unix.SYS_SETSOCKOPT, 0, unix.IPPROTO_IPV6, unix.IPV6_RTHDR}},
	}
	seen := make(map[Denial]bool)
	for _, refusal := range refusals {
		r.cannot(syscall.EPERM, "call", numbers(refusal.args)...)
		if !seen[refusal.denial] || refusal.denial.Hostile { // others are told once
			r.told(refusal.denial)
		}
		seen[refusal.denial] = true
	}

	absent := []struct {
		errno syscall.Errno
		args  []uint64
	}{
		{syscall.ENOSYS, []uint64{unix.SYS_CLONE3}},
		{syscall.ENOSYS, []uint64{unix.SYS_IO_URING_SETUP}},
		{syscall.ENOSYS, []uint64{unix.SYS_IO_URING_ENTER}},
		{syscall.ENOSYS, []uint64{unix.SYS_OPENAT2}},
		{syscall.ENOPROTOOPT, []uint64{unix.SYS_SETSOCKOPT, 0, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT}},
		{syscall.EPROTONOSUPPORT, []uint64{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}},
	}
	if otherABI != 0 {
		absent = append(absent, struct {
			errno syscall.Errno
			args  []uint64
		}{syscall.ENOSYS, []uint64{otherABI | unix.SYS_GETPID}})
	}
	for _, a := range absent {
		r.cannot(a.errno, "call", numbers(a.args)...)
	}
	allowed := [][]uint64{
		{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC, unix.IPPROTO_TCP},
		{unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM},
		{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC},
		{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_NONBLOCK},
		{unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
		{unix.SYS_UNSHARE, unix.CLONE_FS},
		{unix.SYS_PERSONALITY, 0xffffffff},
		{unix.SYS_PERSONALITY, addrNoRandomize},
		{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, 19}, // which everybody may
		{unix.SYS_MEMFD_CREATE, 0x400000},
	}
	for _, args := range allowed {
		r.can("call", numbers(args)...)
	}
	r.cannot(syscall.EFAULT, "call", numbers([]uint64{unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM})...)
	r.cannot(syscall.ENOTTY, "call", numbers([]uint64{unix.SYS_IOCTL, 0, unix.TCGETS})...)

	mustDo(t, os.WriteFile(workspace+"/program", nil, 0o755))
	r.can("chmod", workspace+"/program", "0755")
	r.cannot(syscall.EPERM, "chmod", workspace+"/program", "04755")
	r.cannot(syscall.EPERM, "create", workspace+"/other", "02755")
	r.can("create", workspace+"/other", "0755")

	status := r.can("read", "/proc/self/status")
	for _, want := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if !strings.Contains(status, want+":\t0000000000000000\n") {
			t.Errorf("the run's status has no %s of zero", want)
		}
	}
	if os.Getuid() == 0 && !strings.Contains(status, "CapBnd:\t0000000000000000\n") {
		t.Error("root's run may gain capabilities")
	}
	for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("the run's status has no %q", want)
		}
	}
}

// TestDescriptors: a run has its own descriptors under their numbers, and none of ours.
func TestDescriptors(t *testing.T) {
	p, _ := typical(t)
	own, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	_, err = io.WriteString(w, "for the run")
	mustDo(t, err)
	mustDo(t, w.Close())
	inherited, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	_, err = unix.FcntlInt(inherited.Fd(), unix.F_SETFD, 0) // as if a program had left it to us
	mustDo(t, err)
	r := startRun(t, p, own)
	lines := strings.Split(r.can("descriptors"), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[3], "3=pipe:") {
		t.Errorf("the run has descriptors %q, want 0 to 3", lines)
	}
	if got := r.can("readfd", "3"); got != "for the run" {
		t.Errorf("descriptor 3 has %q", got)
	}
}

// TestNames: the process has the program's name and arguments, and its parent and session are those it was started with.
func TestNames(t *testing.T) {
	p, _ := typical(t)
	r := startRun(t, p)
	exe, _ := os.Executable()
	if got, want := r.can("read", "/proc/self/comm"), filepath.Base(exe); !strings.HasPrefix(want, strings.TrimSpace(got)) {
		t.Errorf("comm is %q, want %q", got, want)
	}
	if got := r.can("read", "/proc/self/cmdline"); got != exe+"\x00" {
		t.Errorf("command line is %q", got)
	}
	if got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", r.cmd.Process.Pid)); err != nil || got != exe {
		t.Errorf("the program is %q, %v", got, err)
	}
	if got := r.can("pdeathsig"); got != number(uint64(syscall.SIGKILL)) {
		t.Errorf("the signal at its parent's death is %s", got)
	}
	if sid, err := unix.Getsid(r.cmd.Process.Pid); err != nil || sid != r.cmd.Process.Pid {
		t.Errorf("session %d, %v", sid, err)
	}
}

// TestStartErrors: what could not be done is said, and the process ends.
func TestStartErrors(t *testing.T) {
	dir := realDir(t)
	mustDo(t, os.WriteFile(dir+"/hidden", []byte("#!/bin/sh\n"), 0o755))
	mustDo(t, os.WriteFile(dir+"/text", []byte("no program"), 0o755))
	mustDo(t, os.WriteFile(dir+"/lost", []byte("#!"+dir+"/missing\n"), 0o755))
	for name, tc := range map[string]struct{ path, want string }{
		"missing":     {dir + "/missing", "execute " + dir + "/missing in the sandbox: no such file or directory"},
		"hidden":      {dir + "/hidden", "permission denied: add its folder, and that of its interpreter, to sandbox.read"},
		"no program":  {dir + "/text", "exec format error"},
		"interpreter": {dir + "/lost", "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := typical(t)
			p.Read, p.Hide = append(p.Read, dir), append(p.Hide, dir+"/hidden")
			s, cmd := confined(t, p, nil, tc.path)
			defer s.Close()
			mustDo(t, cmd.Start())
			if err := s.Started(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 127 {
				t.Errorf("exit status %d, want 127", code)
			}
		})
	}
}

// TestNotStarted: what is prepared and never started leaves nothing.
func TestNotStarted(t *testing.T) {
	before := openDescriptors(t)
	p, _ := typical(t)
	s, err := p.Prepare("/bin/sh", nil)
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, s.Close())
	mustDo(t, s.Close())
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func numbers(list []uint64) []string {
	var out []string
	for _, n := range list {
		out = append(out, number(n))
	}
	return out
}

// hello is a listener outside of all runs that says hello, and its port.
func hello(t *testing.T, network, address string) (addr string, port uint16) {
	t.Helper()
	at := greet(t, network, address)
	return at.String(), uint16(at.(*net.TCPAddr).Port)
}

// greet says hello to whoever connects.
func greet(t *testing.T, network, address string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); serve(l) }()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr()
}

// TestPlantedLinks: a run that may write to a folder cannot grant others what it likes by a link in it.
func TestPlantedLinks(t *testing.T) {
	for _, level := range []Level{Standard, Strict} {
		t.Run(string(level), func(t *testing.T) {
			p, workspace := typical(t)
			p.Level, p.Host = level, &Host{Bwrap: "/usr/bin/bwrap", Version: "0.8.0"}
			outside := realDir(t)
			mustDo(t, os.MkdirAll(outside+"/secret/sub", 0o755))
			mustDo(t, os.Symlink(outside+"/secret", workspace+"/hooks"))
			mustDo(t, os.Symlink(workspace, outside+"/link"))
			for _, tc := range []struct {
				name    string
				change  func(*Policy)
				refused bool
			}{
				{"read", func(p *Policy) { p.Read = append(p.Read, workspace+"/hooks") }, true},
				{"read below", func(p *Policy) { p.Read = append(p.Read, workspace+"/hooks/sub") }, true},
				{"read by another way", func(p *Policy) { p.Read = append(p.Read, outside+"/link/hooks") }, true},
				{"write", func(p *Policy) { p.Write = append(p.Write, workspace+"/hooks") }, true},
				{"hide", func(p *Policy) { p.Hide = append(p.Hide, workspace+"/hooks") }, false},
				{"a link elsewhere", func(p *Policy) { p.Read = append(p.Read, outside+"/link") }, false},
			} {
				q := *p
				tc.change(&q)
				s, err := q.Prepare("/bin/sh", nil)
				if tc.refused != (err != nil && strings.Contains(err.Error(), workspace+"/hooks is a symbolic link")) {
					t.Errorf("%s: %v", tc.name, err)
				}
				if err == nil {
					mustDo(t, s.Close())
				}
			}
		})
	}
}

// TestMark: a run's processes bear its mark and cannot take it off.
func TestMark(t *testing.T) {
	p, workspace := typical(t)
	p.Mark = 1<<61 + 7
	got, err := output(t, p, workspace, nil, "sh", "-c", `prlimit --pid $$ --locks=5:5 2>/dev/null || echo kept; sh -c 'grep "Max file locks" /proc/self/limits' | tr -s ' '`)
	if want := "kept\nMax file locks 2305843009213693959 2305843009213693959 locks \n"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
