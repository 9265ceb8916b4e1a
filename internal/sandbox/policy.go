package sandbox

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Level is how a run is held. The zero value is not a level.
type Level string

// The levels, the weakest first.
const (
	None     Level = "none"     // as any program of the user
	Standard Level = "standard" // by Landlock and seccomp, in the host's namespaces
	Strict   Level = "strict"   // in namespaces of its own, with seccomp
)

// Levels are all levels, the weakest first.
func Levels() []Level { return []Level{None, Standard, Strict} }

// Policy says what a run may do. What it does not name is refused.
type Policy struct {
	Level Level

	// Read, Write and Hide are absolute and clean paths of files and folders. A folder stands for all below it. Where
	// several hold a path, the longest decides; where they are equal, Hide does, then Read. What may be read may also be
	// executed. A path that does not exist is an error in Write, and left out in the others.
	//
	// At level Standard a folder that holds a path with fewer rights than its own takes no new entries, and none can be
	// listed if the path is a hidden folder: the kernel knows only what is allowed, so the folder's entries at the start of
	// the run are allowed one by one.
	Read, Write, Hide []string

	// Temp is the run's own temporary folder, one of Write. At level Strict it is also /tmp, unless something else that is
	// granted lies there. "" is none: /tmp is then in memory.
	Temp string

	// Host is what Probe has found of this host, for level Strict: the path of bubblewrap, and what its version knows. nil:
	// it is looked for on the PATH, and taken for an old one.
	Host *Host

	// FullNetwork allows TCP and UDP to every address, those of the host included. Without it a run may connect by TCP to
	// Ports of 127.0.0.1 and to what it serves itself on a loopback address; what it serves takes connections by the
	// loopback only.
	FullNetwork bool
	// Ports are such as that of the run's endpoint. At level Strict they are 1024 or more: see Start.Listeners.
	Ports []uint16

	// Redirect leads connections to ports of 127.0.0.1 to others of it, which serve the run in their place. It is for level
	// Standard with a notifier.
	Redirect map[uint16]uint16

	// Mark is for level Standard: the hard limit on file locks that the run's processes get and cannot change, by which their
	// host knows them (proc.Host.NewMark). 0 is none.
	Mark uint64

	// NoNotifier is for a host whose kernel cannot ask about a run's calls (see Host.Notify): Landlock alone then holds
	// connections, to Ports at every address, and nothing is told of what is refused.
	NoNotifier bool

	// Report has the run held by nothing: Denied is told what Level would refuse. See CanReport.
	Report bool
	// NoNewPrivileges is for a report where CanReport has said that it needs that: setuid programs have no effect then.
	NoNewPrivileges bool
	// Broad are folders that hold too much to be granted at once, such as a home: a report names what lies in them.
	Broad []string

	// Audit, if not nil, is told at level Standard what Landlock refuses to the run: files, and processes that it may not
	// signal or look into. It is for programs that are started by Start.Apply.
	Audit *AuditedRun

	// Denied, if not nil, is told what the run was refused, as far as that can be seen: calls and connections, not files.
	// It is called by one goroutine at a time, until Start.Close returns, and must not wait.
	Denied func(Denial)
}

// Denial is what a run was refused.
type Denial struct {
	Call   string // such as "connect"
	Detail string // such as "192.0.2.1:443"; may be ""

	// Of the audit log and of a report: Call is also DeniedRead or DeniedWrite, and Detail the file; in a report, the file or
	// the folder that would have to be granted. Hidden then says that no grant would help, Broad that the folder holds too
	// much else.
	Hidden, Broad bool

	// Hostile says that no honest program of a run makes this call. Others, such as a Unix socket to a name server, are
	// made by many and without harm.
	Hostile bool
}

// What the denial of files is called.
const (
	DeniedRead  = "read"
	DeniedWrite = "write"
)

func (d Denial) String() string {
	if d.Detail == "" {
		return d.Call
	}
	return d.Call + " " + d.Detail
}

// maxPorts bounds Policy.Ports.
const maxPorts = 64

// check returns the first mistake in p.
func (p *Policy) check() error {
	if !slices.Contains(Levels(), p.Level) {
		return fmt.Errorf("sandbox level %q: want none, standard or strict", string(p.Level))
	}
	for _, list := range []struct {
		name  string
		paths []string
	}{{"read", p.Read}, {"write", p.Write}, {"hide", p.Hide}} {
		for _, path := range list.paths {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
				return fmt.Errorf("sandbox.%s: %q must be an absolute path without . and .. in it", list.name, path)
			}
		}
	}
	if len(p.Ports) > maxPorts {
		return fmt.Errorf("sandbox: %d ports, at most %d can be granted", len(p.Ports), maxPorts)
	}
	for _, port := range p.Ports {
		if p.Level == Strict && !p.FullNetwork && port < 1024 {
			return fmt.Errorf("sandbox port %d: at level strict it must be 1024 or more", port)
		}
	}
	return nil
}

// program returns the absolute path of a program, which is looked up as proc.Spec's is.
func program(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return filepath.Abs(name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
