package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Names of sockets that are inherited. A systemd socket unit gives them with
// FileDescriptorName=.
const (
	Socket = "socket" // the unix socket of the state directory
	API    = "api"    // TCP
)

// Variables by which one program tells the next which descriptors are listening
// sockets: "NAME=FD" pairs with commas between, and the process that is meant.
const (
	listenersVariable = "AGENTSCHED_LISTENERS"
	pidVariable       = "AGENTSCHED_LISTENERS_PID"
	// keptMark follows the descriptor of a socket whose file is the manager's.
	keptMark = ":kept"
)

// firstDescriptor is the first that systemd passes: SD_LISTEN_FDS_START.
const firstDescriptor = 3

// Inherited is a socket on which the program before this one, or the service
// manager, listens.
type Inherited struct {
	net.Listener
	// Kept says that the file of a unix socket belongs to the manager and stays.
	Kept bool
}

// descriptor is an inherited socket before it is opened.
type descriptor struct {
	name string
	fd   int
	kept bool
}

// Inherit returns the sockets that environ names, by name: those that a Handover
// passed, or those of systemd's socket activation (sd_listen_fds(3)). Those that
// are meant for another process are none. Each descriptor can be inherited once.
func Inherit(environ []string) (map[string]Inherited, error) {
	list, err := passed(environ)
	if list == nil && err == nil {
		list, err = activated(environ)
	}
	if err != nil {
		return nil, fmt.Errorf("take over listening sockets: %w", err)
	}
	sockets := map[string]Inherited{}
	var errs []error
	for _, d := range list {
		l, err := open(d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, twice := sockets[d.name]; twice {
			l.Close()
			errs = append(errs, fmt.Errorf("%s is there twice", d.name))
			continue
		}
		sockets[d.name] = Inherited{l, d.kept}
	}
	if err := errors.Join(errs...); err != nil {
		for _, l := range sockets {
			l.Close()
		}
		return nil, fmt.Errorf("take over listening sockets: %w", err)
	}
	return sockets, nil
}

// WithoutSockets returns environ without what Inherit reads: no child shall look
// for descriptors that it does not have.
func WithoutSockets(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{listenersVariable, pidVariable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"}, name)
	})
}

// passed returns what a Handover passed to this process.
func passed(environ []string) ([]descriptor, error) {
	text, ours := meant(environ, listenersVariable, pidVariable)
	if !ours {
		return nil, nil
	}
	list := []descriptor{}
	for pair := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(pair, "=")
		number, kept := strings.CutSuffix(number, keptMark)
		fd, err := strconv.Atoi(number)
		if err != nil || fd < firstDescriptor {
			return nil, fmt.Errorf("%s holds %q, want a name and a descriptor such as %s=7", listenersVariable, pair, API)
		}
		list = append(list, descriptor{name, fd, kept})
	}
	return list, nil
}

// activated returns what systemd passed to this process.
func activated(environ []string) ([]descriptor, error) {
	text, ours := meant(environ, "LISTEN_FDS", "LISTEN_PID")
	if !ours {
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("LISTEN_FDS is %q, want a number of descriptors", text)
	}
	given, _ := lookup(environ, "LISTEN_FDNAMES")
	names := strings.Split(given, ":")
	var list []descriptor
	for i := range n {
		d := descriptor{fd: firstDescriptor + i, kept: true}
		if i < len(names) {
			d.name = names[i]
		}
		list = append(list, d)
	}
	return list, nil
}

// meant returns the value of a variable, and whether pid names this process.
func meant(environ []string, name, pid string) (string, bool) {
	value, given := lookup(environ, name)
	of, _ := lookup(environ, pid)
	return value, given && of == strconv.Itoa(os.Getpid())
}

// lookup returns the value of a variable; of two, the last one counts.
func lookup(environ []string, name string) (string, bool) {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// open returns the listener of a descriptor, which it closes.
func open(d descriptor) (net.Listener, error) {
	file := os.NewFile(uintptr(d.fd), d.name)
	if file == nil {
		return nil, fmt.Errorf("descriptor %d of %q is none", d.fd, d.name)
	}
	defer file.Close() // the listener has a duplicate that no child inherits
	if d.name != Socket && d.name != API {
		return nil, fmt.Errorf("descriptor %d has the name %q, want %s or %s (FileDescriptorName= of a socket unit)", d.fd, d.name, Socket, API)
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d of %q is no listening stream socket: %w", d.fd, d.name, err)
	}
	return l, nil
}
