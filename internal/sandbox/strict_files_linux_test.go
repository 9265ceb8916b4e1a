//go:build amd64 || arm64

package sandbox

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStrictFiles(t *testing.T) {
	p, workspace := strictly(t)
	h := newHost(t)
	outside := realDir(t)
	secret, home := filepath.Join(outside, "secret"), filepath.Join(outside, "home")
	for _, dir := range []string{home + "/.ssh/keys", home + "/tools", home + "/locked", workspace + "/sub", workspace + "/hooks", workspace + "/private"} {
		mustDo(t, os.MkdirAll(dir, 0o755))
	}
	for _, file := range []string{secret, home + "/.ssh/id", home + "/.ssh/keys/public", home + "/.netrc", home + "/tools/lib", workspace + "/file", workspace + "/hooks/hook", workspace + "/private/key"} {
		mustDo(t, os.WriteFile(file, []byte("content"), 0o644))
	}
	mustDo(t, os.Symlink(secret, workspace+"/link"))
	mustDo(t, os.Symlink(home+"/tools", outside+"/tools"))
	p.Read = append(p.Read, home, outside+"/missing", workspace+"/hooks", outside+"/tools/lib")
	p.Hide = append(p.Hide, home+"/.ssh", home+"/.netrc", workspace+"/private")
	p.Write = append(p.Write, home+"/.ssh/keys")
	r := acts(t, h, p, "")

	// What is written is written outside.
	r.can("write", workspace+"/new")
	r.can("rename", workspace+"/new", workspace+"/sub/new")
	r.can("link", workspace+"/sub/new", workspace+"/again")
	if text, err := os.ReadFile(workspace + "/sub/new"); string(text) != "written" {
		t.Errorf("the workspace outside: %q, %v", text, err)
	}
	r.can("write", home+"/.ssh/keys/new")
	r.can("read", home+"/tools/lib")
	r.can("read", outside+"/tools/lib") // by a link that the policy has named
	r.can("list", home)
	const readOnly, gone = syscall.EROFS, syscall.ENOENT
	r.cannot(readOnly, "write", home+"/new")
	r.cannot(readOnly, "truncate", home+"/tools/lib")
	r.cannot(readOnly, "write", workspace+"/hooks/hook")
	r.cannot(readOnly, "write", workspace+"/hooks/new")
	r.cannot(syscall.EBUSY, "rename", workspace+"/hooks", workspace+"/moved")
	r.cannot(readOnly, "write", "/usr/new")
	r.cannot(readOnly, "write", "/new")
	r.cannot(readOnly, "mkdir", "/new")
	for _, path := range []string{secret, workspace + "/link", "/proc/self/root" + secret, workspace + "/private/key", home + "/.ssh/id", workspace + "/../../secret"} {
		r.cannot(gone, "read", path)
	}
	r.cannot(syscall.EXDEV, "link", home+"/tools/lib", workspace+"/lib")
	r.cannot(syscall.EACCES, "read", home+"/.netrc")
	r.cannot(readOnly, "write", workspace+"/private/new")
	if got := r.can("list", outside); got != "home tools" {
		t.Errorf("beside what is granted there is %q", got)
	}
	if os.Getuid() == 0 {
		r.cannot(syscall.EACCES, "read", "/etc/shadow")
	}

	// Of the host nothing else is there.
	for _, path := range []string{"/root", "/home", "/run", "/var/run/docker.sock", "/var/log", "/var/spool", "/boot", "/sys/class", "/sys/fs/cgroup", "/tmp/.X11-unix"} {
		r.cannot(gone, "list", path)
	}
	if got := r.can("list", "/dev/shm"); got != "" {
		t.Errorf("/dev/shm has %q", got)
	}
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/urandom"} {
		r.can("device", device)
	}
	r.can("terminal")
	shared := "/dev/shm/" + rand.Text() // the host may have a "new"
	r.can("write", shared)
	if _, err := os.Stat(shared); err == nil {
		t.Error("what is written to /dev/shm is outside")
	}
	// Not by a run of root either, which is their owner.
	for _, path := range []string{"/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/self/oom_score_adj", "/proc/self/uid_map"} {
		if _, failure := r.do("append", path); failure != readOnly.Error() && failure != syscall.EACCES.Error() {
			t.Errorf("append to %s: error %q", path, failure)
		}
	}
}

func TestStrictTemporaryFolder(t *testing.T) {
	h := newHost(t)
	t.Run("in memory", func(t *testing.T) {
		p, _ := strictly(t)
		r := acts(t, h, p, "")
		path := "/tmp/" + rand.Text()
		r.can("write", path)
		if _, err := os.Stat(path); err == nil {
			t.Error("/tmp is the host's")
		}
	})
	t.Run("the run's own", func(t *testing.T) {
		p, workspace := strictly(t)
		if strings.HasPrefix(workspace, "/tmp/") { // then nothing else may lie in /tmp
			base, err := os.MkdirTemp("/var/tmp", "sandbox")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(base) })
			exe, err := os.Executable()
			mustDo(t, err)
			copyFile(t, exe, base+"/program")
			p.Read = append(SystemFiles(), base+"/program")
			p.Write, p.Temp = []string{base}, base
		} else {
			p.Temp = workspace
		}
		r := begin(t, h, p, `echo hello >/tmp/new; cat "`+p.Temp+`/new"; ls /tmp`)
		if _, text := r.end(); text != "hello\nnew\nprogram" && text != "hello\nnew" {
			t.Errorf("got %q", text)
		}
	})
}

func TestStrictProcesses(t *testing.T) {
	p, _ := strictly(t)
	h := newHost(t)
	other := acts(t, h, p, "/other")
	r := acts(t, h, p, "/run")

	pids := strings.Fields(r.can("list", "/proc"))
	pids = slices.DeleteFunc(pids, func(name string) bool { _, err := strconv.Atoi(name); return err != nil })
	if !slices.Equal(pids, []string{"1", "2"}) {
		t.Errorf("the run sees processes %q, want its init and itself", pids)
	}
	// The init is the run's only neighbour, and closed to it.
	for _, file := range []string{"environ", "maps", "mem", "auxv"} {
		r.cannot(syscall.EACCES, "read", "/proc/1/"+file)
	}
	for _, path := range []string{"root/etc/passwd", "cwd/etc/passwd"} {
		r.cannot(syscall.EACCES, "read", "/proc/1/"+path)
	}
	if fds, failure := r.do("list", "/proc/1/fd"); failure == "" { // as root
		for _, fd := range strings.Fields(fds) {
			r.cannot(syscall.EACCES, "read", "/proc/1/fd/"+fd)
		}
		if len(strings.Fields(fds)) != 1 {
			t.Errorf("the init has descriptors %q, want only its report", fds)
		}
	}
	if _, failure := r.do("append", "/proc/1/mem"); failure != syscall.EROFS.Error() && failure != syscall.EACCES.Error() {
		t.Errorf("append to the init's memory: error %q", failure)
	}
	r.cannot(syscall.EPERM, "call", number(unix.SYS_PTRACE), number(unix.PTRACE_ATTACH), "1")
	r.told(Denial{Call: "ptrace", Detail: "request 0x10", Hostile: true})
	r.can("kill", "1", number(uint64(syscall.SIGKILL))) // without effect, since it is process 1
	r.can("kill", "1", number(uint64(syscall.SIGSTOP)))
	r.cannot(syscall.ESRCH, "kill", strconv.Itoa(os.Getpid()), "0")

	for name, flags := range map[string]uint64{"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "net": unix.CLONE_NEWNET} {
		if _, failure := r.do("call", number(unix.SYS_UNSHARE), number(flags)); failure != syscall.EPERM.Error() {
			t.Errorf("a new %s namespace: error %q", name, failure)
		}
	}
	r.cannot(syscall.EPERM, "call", number(unix.SYS_SETNS), "0", "0")
	r.cannot(syscall.EPERM, "call", number(unix.SYS_MOUNT), "0", "0", "0", "0", "0")
	for _, line := range strings.Split(r.can("read", "/proc/self/status"), "\n") {
		name, value, _ := strings.Cut(line, ":\t")
		want := map[string]string{"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "NSsid": "2"}[name]
		if want != "" && value != want {
			t.Errorf("%s is %s, want %s", name, value, want)
		}
	}
	if got := r.can("read", "/proc/sys/kernel/hostname"); got != "sandbox\n" {
		t.Errorf("the host's name is %q", got)
	}
	if got := r.can("read", "/proc/self/cgroup"); strings.Contains(got, "..") || strings.Contains(got, fmt.Sprint(os.Getpid())) {
		t.Errorf("the run's cgroups are %q", got)
	}
	other.can("read", "/etc/passwd") // it lives
}

// TestStrictSockets: sockets of this host cannot be reached by their names, those of the run can be made.
func TestStrictSockets(t *testing.T) {
	p, workspace := strictly(t)
	h := newHost(t)
	host, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer host.Close()
	// Abstract names are all processes' of this host: another may run this test at the same time.
	runs, hosts := "@sandbox-test-"+rand.Text(), "@sandbox-test-host-"+rand.Text()
	r := acts(t, h, p, "/run")
	r.cannot(syscall.ECONNREFUSED, "dial", host.Addr().String())
	r.cannot(syscall.ENETUNREACH, "dial", "192.0.2.1:80")
	r.can("listen", "own", "unix", workspace+"/socket")
	r.can("listen", "abstract", "unix", runs)
	if c, err := net.Dial("unix", runs); err == nil {
		c.Close()
		t.Error("an abstract socket of the run is this host's")
	}
	l, err := net.Listen("unix", hosts)
	mustDo(t, err)
	defer l.Close()
	if found, failure := r.do("dial-unix", hosts); failure != syscall.ECONNREFUSED.Error() {
		t.Errorf("an abstract socket of this host: %q, error %q", found, failure)
	}
	other := acts(t, h, p, "/other")
	if found, failure := other.do("dial-unix", runs); failure != syscall.ECONNREFUSED.Error() {
		t.Errorf("an abstract socket of another run: %q, error %q", found, failure)
	}
	for name, args := range map[string][3]uint64{
		"packet": {unix.AF_PACKET, unix.SOCK_RAW, 0}, "raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, "vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
	} {
		if _, failure := r.do("call", number(unix.SYS_SOCKET), number(args[0]), number(args[1]), number(args[2])); failure != syscall.EPERM.Error() {
			t.Errorf("a %s socket: error %q", name, failure)
		}
	}
	r.can("call", number(unix.SYS_SOCKET), number(unix.AF_INET), number(unix.SOCK_DGRAM), "0")
}
