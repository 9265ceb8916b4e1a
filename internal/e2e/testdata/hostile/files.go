package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// read reads a secret.
func (w *world) read(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	n, err := f.Read(buf)
	if err != nil {
		return err
	}
	if !bytes.Contains(buf[:n], []byte(w.Canary)) {
		return errNothing
	}
	return nil
}

// opens opens a file and does nothing with it.
func opens(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// up is a way to the root from the working directory.
func up(path string) string { return strings.Repeat("../", 40) + strings.TrimPrefix(path, "/") }

func fileActs() map[string]func(*world) error {
	return map[string]func(*world) error{
		"read-outside":   func(w *world) error { return w.read(w.Outside + "/secret") },
		"read-dotdot":    func(w *world) error { return w.read(up(w.Outside) + "/secret") },
		"read-symlink":   readByLink,
		"read-proc-root": func(w *world) error { return w.read("/proc/self/root" + w.Outside + "/secret") },
		"read-proc-cwd":  func(w *world) error { return w.read("/proc/self/cwd/" + up(w.Outside) + "/secret") },
		"read-thread": func(w *world) error {
			return w.read(fmt.Sprintf("/proc/%d/task/%d/root%s/secret", os.Getpid(), unix.Gettid(), w.Outside))
		},
		"read-o-path": readReopened,
		"read-hard-link": func(w *world) error {
			_ = os.Remove("hard")
			if err := os.Link(w.Outside+"/secret", "hard"); err != nil {
				return err
			}
			defer os.Remove("hard")
			return w.read("hard")
		},
		"read-by-rename": func(w *world) error {
			if err := os.Rename(w.Outside+"/secret", "renamed"); err != nil {
				return err
			}
			return errors.Join(w.read("renamed"), os.Rename("renamed", w.Outside+"/secret"))
		},
		"read-inherited": readInherited,
		"read-handle":    readByHandle,
		"read-handle-name": func(w *world) error {
			_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, w.Outside+"/secret", 0)
			return err
		},
		"read-list":  func(w *world) error { _, err := os.ReadDir(w.Outside); return err },
		"read-shm":   func(w *world) error { return w.read(w.Shm) },
		"read-stat":  func(w *world) error { _, err := os.Stat(w.Outside + "/secret"); return err },
		"read-watch": watch,
		"read-fanotify": func(*world) error {
			fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		},
		"read-passwords": func(*world) error { return opens("/etc/shadow", unix.O_RDONLY) },
		"read-ssh-key":   func(w *world) error { return w.read(w.Home + "/.ssh/id_ed25519") },
		"read-aws":       func(w *world) error { return w.read(w.Home + "/.aws/credentials") },
		"read-gh":        func(w *world) error { return w.read(w.Home + "/.config/gh/hosts.yml") },
		"read-netrc":     func(w *world) error { return w.read(w.Home + "/.netrc") },
		"read-login":     func(w *world) error { return w.read(w.Home + "/.claude/.credentials.json") },
		"read-history":   func(w *world) error { return w.read(w.Home + "/.bash_history") },
		"read-terminal":  func(w *world) error { return opens(w.Terminal, unix.O_RDWR) },

		"write-outside":  func(w *world) error { return os.WriteFile(w.Beside+"/planted", []byte("planted"), 0o600) },
		"write-dotdot":   func(w *world) error { return os.WriteFile(up(w.Beside)+"/planted", []byte("planted"), 0o600) },
		"write-symlink":  writeByLink,
		"write-truncate": func(w *world) error { return os.Truncate(w.Beside+"/victim", 0) },
		"write-remove":   func(w *world) error { return os.Remove(w.Beside + "/removable") },
		"write-rename": func(w *world) error {
			if err := os.WriteFile("moved", []byte("planted"), 0o600); err != nil {
				return err
			}
			return os.Rename("moved", w.Beside+"/moved")
		},
		"write-home":    func(w *world) error { return os.WriteFile(w.Home+"/.profile", []byte("planted"), 0o600) },
		"write-program": func(w *world) error { return opens(w.Public+"/program", unix.O_WRONLY) },
		"write-mode":    func(w *world) error { return os.Chmod(w.Beside+"/victim", 0o640) },
		"write-times": func(w *world) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, w.Beside+"/victim", []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0)
		},
		"write-attribute": func(w *world) error { return unix.Setxattr(w.Beside+"/victim", "user.planted", []byte("x"), 0) },
		"write-setuid": func(*world) error {
			if err := os.WriteFile("own", nil, 0o700); err != nil {
				return err
			}
			return unix.Chmod("own", 0o4755)
		},
		"write-device": func(*world) error {
			_ = os.Remove("device")
			return unix.Mknod("device", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0)))
		},

		"own-workspace": func(*world) error { return os.WriteFile("made", []byte("by the run"), 0o600) },
		"own-temporary": func(*world) error {
			f, err := os.CreateTemp("", "made")
			if err != nil {
				return err
			}
			return f.Close()
		},
	}
}

func readByLink(w *world) error {
	_ = os.Remove("link")
	if err := os.Symlink(w.Outside+"/secret", "link"); err != nil {
		return err
	}
	return w.read("link")
}

func writeByLink(w *world) error {
	_ = os.Remove("folder")
	if err := os.Symlink(w.Beside, "folder"); err != nil {
		return err
	}
	return os.WriteFile("folder/planted", []byte("planted"), 0o600)
}

// readReopened names a file without opening it for anything, then opens it by the descriptor's name.
func readReopened(w *world) error {
	fd, err := unix.Open(w.Outside+"/secret", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return w.read(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// readInherited looks for the secret in what the process was started with.
func readInherited(w *world) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil || fd < 3 {
			continue
		}
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		var stat unix.Stat_t
		if err != nil || unix.Fstat(fd, &stat) != nil {
			continue
		}
		buf := make([]byte, 4096)
		if stat.Mode&unix.S_IFMT == unix.S_IFREG && !strings.HasPrefix(to, "/sys/") && !strings.HasPrefix(to, "/proc/") {
			if n, _ := unix.Pread(fd, buf, 0); bytes.Contains(buf[:max(n, 0)], []byte(w.Canary)) {
				return nil
			}
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			return nil // a way around every path
		}
	}
	return errNothing
}

// readByHandle opens the secret by its number in the file system.
func readByHandle(w *world) error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, w.Outside+"/secret", 0)
	if err != nil { // any handle shows whether the call is there
		handle = unix.NewFileHandle(1, make([]byte, 8))
	}
	at, err := unix.Open(".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := unix.OpenByHandleAt(at, handle, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return reached(err)
	}
	return unix.Close(fd)
}

func watch(w *world) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, w.Outside+"/secret", unix.IN_ATTRIB)
	return err
}

func stateActs() map[string]func(*world) error {
	acts := make(map[string]func(*world) error)
	for name, file := range map[string]string{"queue": "queue.db", "key": "key", "tokens": "tokens.json", "log": "scheduler.log"} {
		acts["state-"+name] = func(w *world) error { return opens(filepath.Join(w.State, file), unix.O_RDONLY) }
	}
	acts["state-write"] = func(w *world) error { return opens(w.State+"/queue.db", unix.O_RDWR) }
	acts["state-workspace"] = func(w *world) error { return w.read(w.Workspace + "/canary") }
	acts["state-workspace-write"] = func(w *world) error { return os.WriteFile(w.Workspace+"/planted", nil, 0o600) }
	acts["state-home"] = func(w *world) error { return w.read(w.Job + "/canary") }
	acts["state-temporary"] = func(w *world) error { return w.read(w.Temporary + "/canary") }
	acts["state-cache"] = func(w *world) error { return w.read(w.Cache + "/canary") }
	acts["state-cache-write"] = func(w *world) error { return os.WriteFile(w.Cache+"/planted", nil, 0o600) }
	acts["state-search"] = search
	return acts
}

// search looks for the canary everywhere that a process of the run's user finds secrets: files beside its own, what
// processes are told, and its own environment.
func search(w *world) error {
	found := errNothing
	look := func(path string) {
		if w.read(path) == nil {
			found = nil
		}
	}
	for _, name := range []string{"environ", "cmdline"} {
		paths, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, path := range paths {
			look(path)
		}
	}
	for _, folder := range []string{".", os.Getenv("HOME"), os.Getenv("TMPDIR"), os.Getenv("GOPATH"), "/tmp", "/run", "/dev/shm"} {
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && filepath.Dir(path) != w.Public {
				look(path)
			}
			return nil
		})
	}
	return found
}
