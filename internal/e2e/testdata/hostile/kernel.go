package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func text(s string) uintptr {
	p, _ := unix.BytePtrFromString(s)
	return uintptr(unsafe.Pointer(p))
}

// bad makes a call whose arguments the kernel refuses when it has looked at who asks.
func bad(nr uintptr, args ...uintptr) func(*world) error {
	return func(*world) error { _, err := call(nr, args...); return reached(err) }
}

// made is for calls that return a descriptor.
func made(nr uintptr, args ...uintptr) func(*world) error {
	return func(*world) error {
		fd, err := call(nr, args...)
		if err != nil {
			return err
		}
		return unix.Close(int(fd))
	}
}

const none = ^uintptr(0) // a descriptor that there is not

func kernelActs() map[string]func(*world) error {
	return map[string]func(*world) error{
		"kernel-io-uring": func(*world) error {
			var params [120]byte
			fd, err := call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)))
			if err != nil {
				return err
			}
			return unix.Close(int(fd))
		},
		"kernel-bpf":         bad(unix.SYS_BPF, unix.BPF_PROG_LOAD, 0, 0),
		"kernel-userfaultfd": made(unix.SYS_USERFAULTFD, unix.O_CLOEXEC),
		"kernel-perf": func(*world) error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		},
		"kernel-keyring": func(*world) error {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
			return err
		},
		"kernel-key": func(*world) error {
			_, err := unix.AddKey("user", "hostile", []byte("x"), unix.KEY_SPEC_THREAD_KEYRING)
			return err
		},
		"kernel-request-key":   bad(unix.SYS_REQUEST_KEY, text("user"), text("hostile-none"), 0, 0),
		"kernel-kexec":         bad(unix.SYS_KEXEC_LOAD, 0, 1000, 0, 0),
		"kernel-kexec-file":    bad(unix.SYS_KEXEC_FILE_LOAD, none, none, 0, 0, 1<<20),
		"kernel-module":        bad(unix.SYS_INIT_MODULE, 0, 0, 0),
		"kernel-module-file":   bad(unix.SYS_FINIT_MODULE, none, text(""), 0),
		"kernel-module-remove": bad(unix.SYS_DELETE_MODULE, text("hostile_none"), unix.O_NONBLOCK),
		"kernel-reboot":        bad(unix.SYS_REBOOT, 0, 0, 0, 0),
		"kernel-swap":          bad(unix.SYS_SWAPON, text("/proc/self/none"), 0),
		"kernel-accounting":    bad(unix.SYS_ACCT, text("/proc/self/none")),
		"kernel-clock": func(*world) error { // no such time of day
			_, err := call(unix.SYS_CLOCK_ADJTIME, unix.CLOCK_REALTIME, uintptr(unsafe.Pointer(&unix.Timex{Modes: 0x4000})))
			return reached(err)
		},
		"kernel-clock-set": func(*world) error {
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
				return err
			}
			return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
		},
		"kernel-host-name":   bad(unix.SYS_SETHOSTNAME, text("x"), 1000),
		"kernel-domain-name": bad(unix.SYS_SETDOMAINNAME, text("x"), 1000),
		"kernel-log": func(*world) error {
			_, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 64))
			return err
		},
		"kernel-sysctl":      func(*world) error { return opens("/proc/sys/kernel/core_pattern", unix.O_WRONLY) },
		"kernel-sysrq":       func(*world) error { return opens("/proc/sysrq-trigger", unix.O_WRONLY) },
		"kernel-sys":         func(*world) error { return opens("/sys/kernel/mm/transparent_hugepage/enabled", unix.O_WRONLY) },
		"kernel-messages":    func(*world) error { return opens("/dev/kmsg", unix.O_WRONLY) },
		"kernel-memory":      func(*world) error { return opens("/proc/kcore", unix.O_RDONLY) },
		"kernel-personality": func(*world) error { _, err := call(unix.SYS_PERSONALITY, 0x0400000); return err },
		"kernel-terminal":    push,
		"kernel-segment": func(w *world) error {
			data, err := unix.SysvShmAttach(w.Segment, 0, unix.SHM_RDONLY)
			if err != nil {
				return err
			}
			return unix.SysvShmDetach(data)
		},
		"kernel-queue": func(*world) error {
			name := text("hostile-" + strconv.Itoa(os.Getpid()))
			fd, err := call(unix.SYS_MQ_OPEN, name, unix.O_CREAT|unix.O_RDWR, 0o600, 0)
			if err != nil {
				return err
			}
			_, _ = call(unix.SYS_MQ_UNLINK, name)
			return unix.Close(int(fd))
		},

		"mount-user": func(*world) error { return within(unix.CLONE_NEWUSER) },
		"mount-user-all": func(*world) error {
			return within(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET)
		},
		"mount-unshare": func(*world) error { return unix.Unshare(unix.CLONE_NEWUTS) },
		"mount-mount":   bad(unix.SYS_MOUNT, text("none"), text("/"), text("hostile-none"), 0, 0),
		"mount-bind":    bad(unix.SYS_MOUNT, text("/proc/self/none"), text("/"), 0, unix.MS_BIND, 0),
		"mount-umount":  bad(unix.SYS_UMOUNT2, text("/proc/self/"), 0),
		"mount-context": made(unix.SYS_FSOPEN, text("tmpfs"), unix.FSOPEN_CLOEXEC),
		"mount-pick": func(*world) error {
			fd, err := unix.Fspick(unix.AT_FDCWD, "/", unix.FSPICK_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		},
		"mount-tree": func(*world) error {
			fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		},
		"mount-move": func(*world) error {
			return reached(unix.MoveMount(unix.AT_FDCWD, "/proc/self/none", unix.AT_FDCWD, "/", 0))
		},
		"mount-attributes": func(*world) error {
			return reached(unix.MountSetattr(unix.AT_FDCWD, "/proc/self/", 0, &unix.MountAttr{Attr_set: 1 << 40}))
		},
		"mount-root":  func(*world) error { return unix.Chroot("/") },
		"mount-pivot": func(*world) error { return reached(unix.PivotRoot(".", ".")) },
		"mount-enter": func(*world) error {
			fd, err := unix.Open("/proc/1/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil { // its own shows whether the call is there
				fd, err = unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			}
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Setns(fd, unix.CLONE_NEWNET)
		},
	}
}

// within starts a program in namespaces of its own.
func within(flags uintptr) error {
	cmd := exec.Command("/proc/self/exe", "list")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return cmd.Run()
}

// push types a letter into a terminal, its own.
func push(*world) error {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	letter := byte('x')
	_, err = call(unix.SYS_IOCTL, f.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&letter)))
	return err
}
