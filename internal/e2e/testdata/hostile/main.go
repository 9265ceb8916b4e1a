// Hostile is a program that tries to get out of the sandbox that a run is held by. Its first argument names a file with what
// the test has put outside, the others name acts, which it does one after the other. It prints a line for each: whether the
// act had its effect, and the error if not.
//
// An act that could do harm where nothing holds it is done with arguments that the kernel refuses behind its permissions: it
// counts as done when the kernel has looked at them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// world is what the test has put outside of the run.
type world struct {
	Canary    string // in every secret; it appears nowhere else
	Outside   string // a folder of the user's, with a file secret
	Beside    string // another, with files victim and removable
	Home      string // the user's
	Public    string // a folder that the run may read, with programs hostile and setuid, and a file program
	State     string // the scheduler's state directory
	Workspace string // of another run
	Job       string // the folder of another run's job
	Temporary string // folder of another run
	Cache     string // of another tenant

	Daemon, Core, Sibling int // processes; the last is another run's

	Docker, Bus, Agent, Datagram, Abstract string // sockets that answer with the canary
	Loopback, Loopback6, Elsewhere, Meta   string // likewise, TCP, HOST:PORT
	UDP, Resolver, Served                  string // UDP; the last is TCP, another run's

	Shm      string // a file in /dev/shm
	Terminal string // of the user's
	Segment  int    // System V shared memory
}

// acts are what can be done, by name.
func acts() map[string]func(*world) error {
	all := make(map[string]func(*world) error)
	for _, some := range []map[string]func(*world) error{fileActs(), stateActs(), processActs(), socketActs(), networkActs(), kernelActs(), proxyActs(), modelActs()} {
		maps.Copy(all, some)
	}
	return all
}

// result is the line of an act.
type result struct {
	Act   string `json:"act"`
	OK    bool   `json:"ok"`
	Errno string `json:"errno,omitempty"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	all := acts()
	switch {
	case len(args) == 1 && args[0] == "list":
		return json.NewEncoder(os.Stdout).Encode(slices.Sorted(maps.Keys(all)))
	case len(args) == 1 && args[0] == "capabilities":
		return printCapabilities()
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) > 2 && args[0] == "contain":
		return contain(args[1], args[2:])
	case len(args) < 1:
		return errors.New("usage: hostile WORLD ACT [ACT]")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var w world
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, name := range args[1:] {
		do, ok := all[name]
		if !ok {
			return fmt.Errorf("no act %q", name)
		}
		if err := out.Encode(outcome(name, apart(func() error { return do(&w) }))); err != nil {
			return err
		}
	}
	return nil
}

func outcome(name string, err error) result {
	var errno unix.Errno
	switch {
	case err == nil:
		return result{Act: name, OK: true}
	case errors.As(err, &errno):
		return result{Act: name, Errno: unix.ErrnoName(errno)}
	}
	return result{Act: name, Errno: err.Error()}
}

// apart does something in a thread that ends with it, so that what the thread has become is nobody else's.
func apart(do func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		err = do()
	}()
	<-done
	return err
}

// reached says whether the kernel has looked at a call's arguments, which are bad: nil if it has.
func reached(err error) error {
	if err == nil || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		return err
	}
	return nil
}

// call makes a system call.
func call(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return r, errno
	}
	return r, nil
}

// errNothing is that of an act whose every step worked and that found nothing.
var errNothing = errors.New("nothing found")
