package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func processActs() map[string]func(*world) error {
	acts := make(map[string]func(*world) error)
	for who, pid := range map[string]func(*world) int{
		"scheduler": func(w *world) int { return w.Daemon },
		"core":      func(w *world) int { return w.Core },
		"sibling":   func(w *world) int { return w.Sibling },
	} {
		file := func(w *world, name string) string { return fmt.Sprintf("/proc/%d/%s", pid(w), name) }
		acts[who+"-environ"] = func(w *world) error { return w.read(file(w, "environ")) }
		acts[who+"-memory"] = func(w *world) error { return opens(file(w, "mem"), unix.O_RDWR) }
		acts[who+"-maps"] = func(w *world) error {
			data, err := os.ReadFile(file(w, "maps"))
			if err == nil && len(data) == 0 {
				return errNothing
			}
			return err
		}
		acts[who+"-descriptors"] = func(w *world) error { return opens(file(w, "fd/0"), unix.O_RDONLY) }
		acts[who+"-folder"] = func(w *world) error { _, err := os.ReadDir(file(w, "cwd/")); return err }
		acts[who+"-root"] = func(w *world) error { return w.read(file(w, "root") + w.Outside + "/secret") }
		acts[who+"-arguments"] = func(w *world) error { _, err := os.ReadFile(file(w, "cmdline")); return err }
		acts[who+"-signal"] = func(w *world) error { return unix.Kill(pid(w), unix.SIGURG) } // Go's programs take no notice
		acts[who+"-trace"] = func(w *world) error {
			if _, err := call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid(w))); err != nil {
				return err
			}
			_, _ = call(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(pid(w)))
			_, _ = unix.Wait4(pid(w), nil, unix.WALL, nil)
			return unix.PtraceDetach(pid(w))
		}
		acts[who+"-limits"] = func(w *world) error {
			var old unix.Rlimit
			if err := unix.Prlimit(pid(w), unix.RLIMIT_CORE, nil, &old); err != nil {
				return err
			}
			return unix.Prlimit(pid(w), unix.RLIMIT_CORE, &old, nil)
		}
	}
	sibling := func(do func(pid int) error) func(*world) error {
		return func(w *world) error { return do(w.Sibling) }
	}
	acts["sibling-descriptor-numbers"] = func(w *world) error { _, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.Sibling)); return err }
	acts["sibling-vm-read"] = sibling(func(pid int) error {
		buf := make([]byte, 8)
		local := unix.Iovec{Base: &buf[0], Len: 8}
		_, err := call(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&unix.RemoteIovec{Base: 4096, Len: 8})), 1)
		return reached(noProcess(err))
	})
	acts["sibling-pidfd"] = sibling(func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		got, err := unix.PidfdGetfd(fd, 0, 0)
		if err != nil {
			return err
		}
		return unix.Close(got)
	})
	acts["sibling-pidfd-signal"] = sibling(func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.PidfdSendSignal(fd, unix.SIGURG, nil, 0)
	})
	acts["sibling-priority"] = sibling(func(pid int) error {
		is, err := unix.Getpriority(unix.PRIO_PROCESS, pid) // 20 less what is called nice
		if err != nil {
			return err
		}
		return unix.Setpriority(unix.PRIO_PROCESS, pid, 20-is)
	})
	acts["sibling-affinity"] = sibling(func(pid int) error {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil {
			return err
		}
		return unix.SchedSetaffinity(pid, &set)
	})

	acts["cgroup-move"] = func(*world) error { return anyCgroup("cgroup.procs") }
	acts["cgroup-make"] = func(*world) error {
		for _, root := range cgroups {
			if err := os.Mkdir(root+"/hostile", 0o700); err == nil {
				return os.Remove(root + "/hostile")
			}
		}
		return unix.EACCES
	}
	acts["setuid-program"] = func(w *world) error {
		out, err := exec.Command(w.Public+"/setuid", "capabilities").CombinedOutput()
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(out)) == "0000000000000000" {
			return errNothing
		}
		return nil
	}
	acts["own-memory-program"] = func(w *world) error {
		fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "program")
		defer f.Close()
		from, err := os.Open("/proc/self/exe")
		if err != nil {
			return err
		}
		defer from.Close()
		if _, err := io.Copy(f, from); err != nil {
			return err
		}
		return exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd), "list").Run()
	}
	return acts
}

// cgroups are where hosts have the roots of their cgroups.
var cgroups = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"}

func anyCgroup(file string) error {
	err := error(unix.ENOENT)
	for _, root := range cgroups {
		is := opens(root+"/"+file, unix.O_WRONLY)
		if is == nil {
			return nil
		}
		if !errors.Is(is, unix.ENOENT) {
			err = is
		}
	}
	return err
}

// noProcess takes a process that is not seen for one that may not be reached.
func noProcess(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return unix.EPERM
	}
	return err
}

func printCapabilities() error {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "CapEff:\t"); found {
			_, err = fmt.Print(value)
			return err
		}
	}
	return errNothing
}
