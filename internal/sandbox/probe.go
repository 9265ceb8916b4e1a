package sandbox

import (
	"context"
	"fmt"
)

// Host is what a host can do to hold runs. Each error is why something is not there, with what mends it; nil says that it
// is and works.
type Host struct {
	System  string // such as "linux/amd64"
	Kernel  string // its release, or "" where it is not told
	ABI     int    // version of Landlock; 0 none
	Bwrap   string // path of bubblewrap, or ""
	Version string // of bubblewrap, such as "0.8.0"

	Landlock      error // the kernel holds files
	Notify        error // the kernel asks about connections, and hands out a run's sockets; else see Policy.NoNotifier
	Standard      error // a program was started at level Standard
	Namespaces    error // a user namespace with others in it was made
	Bubblewrap    error // bubblewrap has started a program in all namespaces that level Strict uses
	SignalsScoped bool  // a run's signals reach its own processes only
	Audit         error // what Landlock refuses can be heard of in the kernel's audit log; see AuditLog
}

// Probe tries what this host can do. It starts programs that end at once, so it comes before the process has a proc.Host.
func Probe(ctx context.Context) Host { return probe(ctx) }

// ProbeStandard tries as Probe does, and no more than level Standard: nil if the host has it, else why not.
func ProbeStandard(ctx context.Context) error { return probeStandard(ctx).Standard }

// ErrAuditOff is Host.Audit where nobody has asked for what the audit log says.
var ErrAuditOff error = &Problem{What: "sandbox.audit is not set"}

// Problem is why a host does not have something, and what to do about it.
type Problem struct {
	What string // failed, and why
	Mend string // such as a command; "" where nothing helps
	// Command mends it, run by root; nil if it takes more than one command.
	Command []string
}

func (p *Problem) Error() string {
	if p.Mend == "" {
		return p.What
	}
	return p.What + ": " + p.Mend
}

// Can returns nil if the host has the level, else why not.
func (h Host) Can(level Level) error {
	switch level {
	case None:
		return nil
	case Standard:
		return h.Standard
	default:
		return h.Bubblewrap
	}
}

// Best returns the strongest level that the host has, and for each stronger one why it does not.
func (h Host) Best() (level Level, reasons []string) {
	levels := Levels()
	for i := len(levels) - 1; i >= 0; i-- {
		err := h.Can(levels[i])
		if err == nil {
			return levels[i], reasons
		}
		reasons = append(reasons, fmt.Sprintf("level %s: %v", levels[i], err))
	}
	return None, reasons
}

// NotHeld says in sentences what runs of a level may do on this host although no grant says so.
func (h Host) NotHeld(level Level) []string {
	switch level {
	case None:
		return []string{"A run may do everything that its user may."}
	case Strict:
		list := []string{
			"A run sees the host's processors, memory and load, and the kernel's version.",
			"A run may connect to a Unix socket that another program of its user serves in a granted folder, unless the network is full.",
			"A run with the full network may connect to what listens on the host's loopback.",
			"A run may attack the kernel by all calls that are not refused.",
		}
		if h.Notify != nil {
			list = append(list, "Nothing is told of calls that a run is refused: "+h.Notify.Error()+".")
		}
		return append(list, "Nothing is told of files that a run does not find or may not change: the kernel does not log that.")
	}
	list := []string{
		"A run sees which files and folders there are, their sizes, owners and times, and when they change, where its user may; it cannot open them.",
		"A run may change mode, owner, times and attributes of its user's files that it cannot open; setuid and setgid are refused.",
		"A run sees the processes of the host and their command lines; it sees neither their environment nor their memory.",
		"A run may open terminals of its user in /dev/pts, read what is typed there and print to them, unless sandbox.hide has /dev/pts.",
		"A run may use System V shared memory, semaphores and message queues of its user's other processes.",
		"A run may change the scheduling of its user's other processes: processors, policy and the priority of input and output.",
		"A run may listen on every free port of the host; connections come by the loopback only, unless the network is full.",
		"What a run serves on the loopback, every program of the host may connect to, other runs excepted.",
		"A run may take a free abstract name of a Unix socket; it cannot listen there.",
		"A process that leaves the run's session is found and ended by the scheduler, not by the kernel.",
		"A run may attack the kernel by all calls that are not refused.",
	}
	if !h.SignalsScoped {
		list = append(list, "A run may send signals to its user's other processes, the scheduler included: the kernel is older than Linux 6.12.")
	}
	if h.Notify != nil {
		list = append(list,
			"A run may connect to its ports at every address, and what it serves takes connections from everywhere; it cannot connect to that itself: "+h.Notify.Error()+".",
			"Nothing is told of calls that a run is refused: "+h.Notify.Error()+".")
	}
	if h.Audit != nil {
		list = append(list, "Nothing is told of files that a run is refused: "+h.Audit.Error()+".")
	}
	if h.ABI > 0 && h.ABI < 3 {
		list = append(list, "A run may empty its user's files by truncate(2): the kernel is older than Linux 6.2.")
	}
	if h.ABI > 0 && h.ABI < 5 {
		list = append(list, "A run may send ioctl(2) to devices that it may read: the kernel is older than Linux 6.10.")
	}
	return list
}

// Missing says in sentences what programs miss at level Standard on this host although it would do no harm.
func (h Host) Missing() []string {
	list := []string{
		"Unix sockets are connections to what the run itself serves at a path; there are none for datagrams, and no UDP without the full network: what needs them, such as Gradle, fails or does without.",
		"There is no /dev/shm: what needs it, such as the locks of Python's multiprocessing, fails unless sandbox.write has it; then it is the host's.",
		"Processes cannot be traced: debuggers, strace and LeakSanitizer fail.",
		"Programs of another architecture, such as those of 32 bits, are ended at once by SIGSYS.",
		"Root has no capabilities: tar needs --no-same-owner for archives of others.",
	}
	if h.ABI > 0 && h.ABI < 2 {
		list = append(list, "Files cannot be moved from folder to folder: the kernel is older than Linux 5.19.")
	}
	return list
}
