//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// actor does the acts that its standard input names, a line each, and answers each with what it found and an error.
func actor() int {
	a := acting{open: make(map[string]io.Closer)}
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var words []string
		if err := json.Unmarshal(lines.Bytes(), &words); err != nil {
			return 1
		}
		found, err := a.do(words[0], words[1:])
		failure := ""
		if err != nil {
			failure = err.Error()
			var errno syscall.Errno
			if errors.As(err, &errno) {
				failure = errno.Error()
			}
		}
		if err := out.Encode([2]string{found, failure}); err != nil {
			return 1
		}
	}
	return 0
}

// readInDomain reads a file within a Landlock domain of the thread's own, in which no file may be read.
func readInDomain(path string) error {
	runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
	attr := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_READ_FILE}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return errno
	}
	_, err := os.ReadFile(path)
	return err
}

// acting holds what earlier acts opened, by name.
type acting struct{ open map[string]io.Closer }

func (a acting) do(act string, args []string) (string, error) {
	number := func(i int) uintptr {
		n, _ := strconv.ParseUint(args[i], 0, 64)
		return uintptr(n)
	}
	switch act {
	case "read":
		data, err := os.ReadFile(args[0])
		return string(data), err
	case "call under signals": // so many times
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		pid, thread := os.Getpid(), unix.Gettid()
		var over atomic.Bool
		var signals sync.WaitGroup
		signals.Go(func() {
			for !over.Load() {
				_ = unix.Tgkill(pid, thread, unix.SIGURG) // which Go takes for itself, and restarts calls
				// Those that come too soon end the call before anybody has seen it.
				for at := time.Now(); time.Since(at) < time.Duration(rand.IntN(200))*time.Microsecond; {
				}
			}
		})
		for range number(0) {
			_, _, _ = unix.Syscall(number(1), 0, 0, 0)
		}
		over.Store(true)
		signals.Wait()
		return "", nil
	case "open again": // and again
		for range number(1) {
			fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return "", err
			}
			_ = unix.Close(fd)
		}
		return "", nil
	case "list":
		entries, err := os.ReadDir(args[0])
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " "), err
	case "write":
		return "", os.WriteFile(args[0], []byte("written"), 0o644)
	case "append":
		f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return "", err
		}
		return "", f.Close()
	case "truncate":
		return "", os.Truncate(args[0], 0)
	case "mkdir":
		return "", os.Mkdir(args[0], 0o755)
	case "remove":
		return "", os.Remove(args[0])
	case "rename":
		return "", os.Rename(args[0], args[1])
	case "link":
		return "", os.Link(args[0], args[1])
	case "symlink":
		return "", os.Symlink(args[0], args[1])
	case "chmod":
		return "", unix.Chmod(args[0], uint32(number(1)))
	case "create": // with a mode
		fd, err := unix.Open(args[0], unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, uint32(number(1)))
		if err != nil {
			return "", err
		}
		return "", unix.Close(fd)
	case "descriptors":
		entries, err := os.ReadDir("/proc/self/fd")
		var names []string
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !ofRuntime(to) {
				names = append(names, e.Name()+"="+to)
			}
		}
		return strings.Join(names, "\n"), err
	case "readfd":
		data, err := io.ReadAll(os.NewFile(number(0), "inherited"))
		return string(data), err
	case "call": // a system call with plain numbers
		var n [7]uintptr
		for i := range args {
			n[i] = number(i)
		}
		r, _, errno := unix.Syscall6(n[0], n[1], n[2], n[3], n[4], n[5], n[6])
		if errno != 0 {
			return "", errno
		}
		return strconv.FormatUint(uint64(r), 10), nil
	case "read in a domain": // of its own
		result := make(chan error)
		go func() { result <- readInDomain(args[0]) }()
		return "", <-result
	case "kill":
		return "", unix.Kill(int(number(0)), syscall.Signal(number(1)))
	case "listen":
		l, err := net.Listen(args[1], args[2])
		if err != nil {
			return "", err
		}
		a.open[args[0]] = l
		go serve(l)
		return l.Addr().String(), nil
	case "close":
		return "", a.open[args[0]].Close()
	case "dial": // and read all that is said
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return "", err
		}
		defer c.Close()
		data, err := io.ReadAll(c)
		return string(data), err
	case "dial-unix":
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return "", err
		}
		defer c.Close()
		data, err := io.ReadAll(c)
		return string(data), err
	case "chdir":
		return "", os.Chdir(args[0])
	case "dial while exchanged": // dials the first path while the second takes its place and gives it back
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
					if err := unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE); err != nil {
						done <- err
						return
					}
				}
			}
		}()
		made, refused := 0, 0
		// So many times, and until both were met: on a busy machine the one who exchanges may have no processor meanwhile.
		for n := uintptr(0); n < number(2) || (made == 0 || refused == 0) && len(done) == 0; n++ {
			c, err := net.Dial("unix", args[0])
			if err != nil {
				refused++
				continue
			}
			made++
			_ = c.Close()
		}
		close(stop)
		return fmt.Sprint(made > 0, refused > 0), <-done
	case "connect": // by system calls alone: a family, a sockaddr, and what is done before
		return a.connect(args)
	case "connectfd": // of AF_UNSPEC, which ends a connection
		raw := [16]byte{}
		if _, _, errno := unix.Syscall(unix.SYS_CONNECT, number(0), uintptr(unsafe.Pointer(&raw)), 16); errno != 0 {
			return "", errno
		}
		return "", nil
	case "unbind", "device of": // a listener
		conn, err := a.open[args[0]].(*net.TCPListener).SyscallConn()
		if err != nil {
			return "", err
		}
		var device string
		var failure error
		err = conn.Control(func(fd uintptr) {
			if act == "unbind" {
				failure = unix.BindToDevice(int(fd), "")
			} else {
				device, failure = unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
			}
		})
		return device, errors.Join(err, failure)
	case "run": // a program
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		return string(out), err
	case "terminal": // a new one, its other side opened by path
		f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPTLCK, 0); err != nil {
			return "", err
		}
		n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPTN)
		if err != nil {
			return "", err
		}
		side, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return "", err
		}
		defer side.Close()
		_, err = unix.IoctlGetTermios(int(side.Fd()), unix.TCGETS)
		return "", err
	case "prctl":
		r, _, errno := unix.Syscall6(unix.SYS_PRCTL, number(0), number(1), 0, 0, 0, 0)
		if errno != 0 {
			return "", errno
		}
		return strconv.Itoa(int(r)), nil
	case "pdeathsig":
		var signal int32
		_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0)
		if errno != 0 {
			return "", errno
		}
		return strconv.Itoa(int(signal)), nil
	case "device":
		f, err := os.OpenFile(args[0], os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		defer f.Close()
		_, err = f.Write([]byte("x"))
		return "", err
	}
	return "", fmt.Errorf("unknown act %q", act)
}

// ofRuntime says whether Go's own runtime opened a descriptor, which leads to this path.
func ofRuntime(path string) bool {
	return strings.HasPrefix(path, "anon_inode:") || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/fs/cgroup/")
}

// serve says hello to everybody.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "hello")
		_ = c.Close()
	}
}

// connect connects a socket of args[0] (4 or 6) to the address and port args[1], and returns what its peer says.
func (a acting) connect(args []string) (string, error) {
	family := unix.AF_INET
	if args[0] == "6" {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	to, err := netip.ParseAddrPort(args[1])
	if err != nil {
		return "", err
	}
	raw := sockaddr(to, family)
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw))); errno != 0 {
		return "", errno
	}
	buf := make([]byte, 16)
	n, err := unix.Read(fd, buf)
	return string(buf[:max(n, 0)]), err
}

// sockaddr is an address as connect(2) takes it.
func sockaddr(to netip.AddrPort, family int) []byte {
	if family == unix.AF_INET6 {
		raw := make([]byte, unix.SizeofSockaddrInet6)
		raw[0], raw[2], raw[3] = unix.AF_INET6, byte(to.Port()>>8), byte(to.Port())
		ip := to.Addr().As16()
		copy(raw[8:], ip[:])
		return raw
	}
	raw := make([]byte, unix.SizeofSockaddrInet4)
	raw[0], raw[2], raw[3] = unix.AF_INET, byte(to.Port()>>8), byte(to.Port())
	ip := to.Addr().As4()
	copy(raw[4:], ip[:])
	return raw
}
