package e2e

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of acts into docs/security.md")

// TestHostileTable: the documentation says of each act what TestHostile wants.
func TestHostileTable(t *testing.T) {
	const file = "../../docs/security.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile(`(?m)^<!-- acts -->\n(\|.*\n)*`)
	if n := len(place.FindAll(text, -1)); n != 1 {
		t.Fatalf("%s has %d lines <!-- acts -->, want one", file, n)
	}
	want := place.ReplaceAllLiteral(text, []byte("<!-- acts -->\n"+markdown(hostileTable())))
	switch {
	case string(want) == string(text):
	case *update:
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of %s is not that of hostileTable: go test ./internal/e2e -run TestHostileTable -update", file)
	}
}

// standing is what becomes of an act at a level.
type standing string

const (
	held    standing = "held"
	open    standing = "not held" // said in sandbox.Host.NotHeld
	allowed standing = "allowed"  // a run needs it, and it harms nobody
)

// hostileRow is acts of testdata/hostile that have the same standing.
type hostileRow struct {
	what             string // in words
	acts             string // their names
	standard, strict standing
	// grant is what makes the acts work at both levels; "" nothing does.
	grant string
	// control is who can do the acts, so that a refusal proves the sandbox: a run that nothing holds, if it is "", or a process of
	// root's that is no run.
	control string
	// absent is the error of the acts on kernels that were built without.
	absent string
	// job says what the job of the acts is like: "" has no grants, "hosts" may reach some hosts, "models" asks
	// models.
	job string
	// landlock is the version of Landlock (its ABI) that holds the acts at level standard; 0 any.
	landlock int
	// attacks says that each of the acts is told as one that no honest program does. The fifth stops a run.
	attacks bool
}

const asRoot = "root"

// at returns the standing at a level.
func (r *hostileRow) at(level string) standing {
	if level == "strict" {
		return r.strict
	}
	return r.standard
}

func (r *hostileRow) names() []string { return strings.Fields(r.acts) }

// hostileTable is what docs/security.md says, and what TestHostile does.
func hostileTable() []hostileRow {
	return []hostileRow{
		{what: "read a file of the user's by its path, `..`, a symbolic link, `/proc/self/root`, `/proc/self/cwd`, a thread's root, `O_PATH`", standard: held, strict: held, grant: "`sandbox.read`",
			acts: "read-outside read-dotdot read-symlink read-proc-root read-proc-cwd read-thread read-o-path"},
		{what: "list a folder of the user's", standard: held, strict: held, grant: "`sandbox.read`", acts: "read-list"},
		{what: "read such a file by a hard link, or by moving it into the workspace", standard: held, strict: held, acts: "read-hard-link read-by-rename"},
		{what: "read such a file by an open descriptor that it was started with", standard: held, strict: held, control: asRoot, acts: "read-inherited"},
		{what: "open a file by its handle (`open_by_handle_at`)", standard: held, strict: held, control: asRoot, attacks: true, acts: "read-handle"},
		{what: "see size, owner, times and handle of a file, and watch it (inotify)", standard: open, strict: held, acts: "read-stat read-handle-name read-watch"},
		{what: "watch all files (fanotify)", standard: held, strict: held, control: asRoot, acts: "read-fanotify"},
		{what: "read files of other programs in `/dev/shm`", standard: held, strict: held, acts: "read-shm"},
		{what: "read password hashes", standard: held, strict: held, control: asRoot, acts: "read-passwords"},
		{what: "read `~/.ssh`, `~/.aws`, `~/.config/gh`, `~/.netrc`, an agent's login, the shell's history", standard: held, strict: held,
			acts: "read-ssh-key read-aws read-gh read-netrc read-login read-history"},
		{what: "open a terminal of the user's", standard: open, strict: held, acts: "read-terminal"},
		{what: "write beside the workspace by a path, `..`, a symbolic link", standard: held, strict: held, grant: "`sandbox.write`",
			acts: "write-outside write-dotdot write-symlink"},
		{what: "move a file out of the workspace", standard: held, strict: held, acts: "write-rename"},
		{what: "empty or remove a file of the user's", standard: held, strict: held, grant: "`sandbox.write`", acts: "write-truncate write-remove"},
		{what: "write to the user's home, and to a program that it may read", standard: held, strict: held, acts: "write-home write-program"},
		{what: "change mode, times and attributes of a file of the user's", standard: open, strict: held, acts: "write-mode write-times write-attribute"},
		{what: "make a file setuid", standard: held, strict: held, acts: "write-setuid"},
		{what: "make a device", standard: held, strict: held, control: asRoot, acts: "write-device"},
		{what: "write to its workspace and its temporary folder", standard: allowed, strict: allowed, acts: "own-workspace own-temporary"},

		{what: "read the queue, the key, the tokens and the log of the scheduler", standard: held, strict: held, acts: "state-queue state-key state-tokens state-log"},
		{what: "write to the queue", standard: held, strict: held, acts: "state-write"},
		{what: "read and write another run's workspace, read its home and its temporary folder, where its secrets are", standard: held, strict: held,
			acts: "state-workspace state-workspace-write state-home state-temporary"},
		{what: "read and write another tenant's cache", standard: held, strict: held, acts: "state-cache state-cache-write"},
		{what: "find a key in its environment, its files, or what processes were started with", standard: held, strict: held, acts: "state-search"},

		{what: "read environment and memory of the scheduler and its core", standard: held, strict: held, control: asRoot,
			acts: "scheduler-environ scheduler-memory scheduler-maps core-environ core-memory core-maps"},
		{what: "use open files, folder and root of the scheduler and its core", standard: held, strict: held, control: asRoot,
			acts: "scheduler-descriptors scheduler-folder scheduler-root core-descriptors core-folder core-root"},
		{what: "read environment and memory of another run", standard: held, strict: held, acts: "sibling-environ sibling-memory sibling-maps"},
		{what: "use open files, folder and root of another run", standard: held, strict: held, acts: "sibling-descriptors sibling-folder sibling-root"},
		{what: "see how many files another run has open", standard: open, strict: held, acts: "sibling-descriptor-numbers"},
		{what: "see the command line of the scheduler, its core and other runs", standard: open, strict: held, acts: "scheduler-arguments core-arguments sibling-arguments"},
		{what: "send a signal to the scheduler, its core or another run", standard: held, strict: held, landlock: 6, acts: "scheduler-signal core-signal sibling-signal sibling-pidfd-signal"},
		{what: "trace the scheduler, its core or another run (`ptrace`)", standard: held, strict: held, control: asRoot, attacks: true, acts: "scheduler-trace core-trace sibling-trace"},
		{what: "read another run's memory by `process_vm_readv`", standard: held, strict: held, control: asRoot, attacks: true, acts: "sibling-vm-read"},
		{what: "take open files of another run by `pidfd_getfd`", standard: held, strict: held, control: asRoot, acts: "sibling-pidfd"},
		{what: "change limits of the scheduler, its core or another run, or another run's priority", standard: held, strict: held, acts: "scheduler-limits core-limits sibling-limits sibling-priority"},
		{what: "bind another run to a processor", standard: open, strict: held, acts: "sibling-affinity"},
		{what: "leave its cgroup, or make one", standard: held, strict: held, control: asRoot, acts: "cgroup-move cgroup-make"},
		{what: "get capabilities by a setuid program", standard: held, strict: held, acts: "setuid-program"},
		{what: "execute a program that it made in memory", standard: allowed, strict: allowed, acts: "own-memory-program"},

		{what: "connect to Docker, D-Bus, an ssh agent, the scheduler", standard: held, strict: held, acts: "unix-docker unix-bus unix-agent unix-scheduler"},
		{what: "connect to an abstract socket", standard: held, strict: held, acts: "unix-abstract"},
		{what: "send to a socket of the user's, also by one of a pair", standard: held, strict: held, acts: "unix-datagram unix-pair"},
		{what: "be told where such sockets are", standard: held, strict: held, acts: "unix-environment"},
		{what: "connect to a port of the host's loopback by IPv4, IPv6, `0.0.0.0`, a mapped address", standard: held, strict: held, grant: "`network: full`",
			acts: "tcp-loopback tcp-loopback6 tcp-unspecified tcp-mapped"},
		{what: "connect to another host", standard: held, strict: held, grant: "`network: full`", acts: "tcp-elsewhere"},
		{what: "connect to a cloud's metadata service", standard: held, strict: held, grant: "`network: full`", acts: "tcp-metadata"},
		{what: "connect to what another run serves", standard: held, strict: held, acts: "tcp-sibling"},
		{what: "connect by sending (TCP Fast Open)", standard: held, strict: held, grant: "`network: full`", acts: "tcp-fast-open"},
		{what: "send UDP, and questions to a name server (DNS tunnel)", standard: held, strict: held, grant: "`network: full`", acts: "udp-send udp-names"},
		{what: "make raw and packet sockets", standard: held, strict: held, control: asRoot, attacks: true, acts: "socket-raw socket-raw6 socket-packet"},
		{what: "make a netlink socket that hears of devices", standard: held, strict: held, acts: "socket-netlink"},
		{what: "use the kernel's ciphers (AF_ALG)", standard: held, strict: held, absent: "EAFNOSUPPORT", acts: "socket-algorithm"},
		{what: "make a socket to the host of a virtual machine (vsock)", standard: held, strict: held, absent: "EAFNOSUPPORT", attacks: true, acts: "socket-vsock"},
		{what: "change interfaces and routes", standard: held, strict: held, control: asRoot, acts: "socket-routes"},
		{what: "serve on its loopback and connect to it, list interfaces, use a socket pair", standard: allowed, strict: allowed, acts: "own-serve own-interfaces own-pair"},

		{what: "reach a host by the proxy that the job names in `network`, plain and by a tunnel", standard: allowed, strict: allowed, job: "hosts", acts: "proxy-host proxy-tunnel"},
		{what: "reach another host, one below it, or another port of it", standard: held, strict: held, job: "hosts",
			acts: "proxy-refused proxy-refused-below proxy-tunnel-refused proxy-port proxy-tunnel-port"},
		{what: "reach the host's loopback by the proxy", standard: held, strict: held, job: "hosts", acts: "proxy-loopback proxy-mapped"},
		{what: "reach a cloud's metadata service by the proxy, by its address, by a redirect of an allowed host, by an allowed name", standard: held, strict: held, job: "hosts",
			acts: "proxy-metadata proxy-tunnel-metadata proxy-metadata-name proxy-redirect"},
		{what: "reach the loopback by an allowed name, also by one whose address changes (rebinding)", standard: held, strict: held, job: "hosts", acts: "proxy-inward proxy-rebind"},
		{what: "have the proxy ask a name server for a refused name (DNS tunnel)", standard: held, strict: held, job: "hosts", acts: "proxy-names"},
		{what: "name another host in a header, or in a second request on a connection", standard: held, strict: held, job: "hosts", acts: "proxy-header proxy-pipelined"},
		{what: "ask an allowed host for pages of another one within a tunnel", standard: open, strict: open, job: "hosts", acts: "proxy-fronting"},

		{what: "ask its models", standard: allowed, strict: allowed, job: "models", acts: "model-ask"},
		{what: "ask another model of the provider", standard: open, strict: open, job: "models", acts: "model-another"},
		{what: "find the provider's key in environment, files and processes, or in what the provider says", standard: held, strict: held, job: "models", acts: "model-key model-echo"},
		{what: "ask for something else than an answer of a model, such as files, batches, the organization's keys", standard: held, strict: held, job: "models",
			acts: "model-files model-batch model-tuning model-admin model-path model-escaped"},
		{what: "have the provider search the web, fetch an address or read a stored file", standard: held, strict: held, job: "models", acts: "model-search model-fetch model-stored"},
		{what: "begin requests beyond its budget, by many at the same time or by answers that it breaks off", standard: held, strict: held, job: "models", acts: "model-parallel model-abort"},

		{what: "use io_uring", standard: held, strict: held, acts: "kernel-io-uring"},
		{what: "use bpf", standard: held, strict: held, absent: "ENOSYS", control: asRoot, attacks: true, acts: "kernel-bpf"},
		{what: "use userfaultfd and perf", standard: held, strict: held, control: asRoot, acts: "kernel-userfaultfd kernel-perf"},
		{what: "use keyrings", standard: held, strict: held, attacks: true, acts: "kernel-keyring kernel-key kernel-request-key"},
		{what: "start another kernel (kexec)", standard: held, strict: held, absent: "ENOSYS", control: asRoot, attacks: true, acts: "kernel-kexec kernel-kexec-file"},
		{what: "load or remove kernel modules", standard: held, strict: held, absent: "ENOSYS", control: asRoot, attacks: true, acts: "kernel-module kernel-module-file kernel-module-remove"},
		{what: "restart the host, swap, account processes", standard: held, strict: held, control: asRoot, acts: "kernel-reboot kernel-swap kernel-accounting"},
		{what: "set the clock, the names of host and domain", standard: held, strict: held, control: asRoot, acts: "kernel-clock kernel-clock-set kernel-host-name kernel-domain-name"},
		{what: "read and write the kernel's log", standard: held, strict: held, control: asRoot, acts: "kernel-log kernel-messages"},
		{what: "read the kernel's memory", standard: held, strict: held, control: asRoot, absent: "ENOENT", acts: "kernel-memory"},
		{what: "write to `/proc/sys` and `/sys`", standard: held, strict: held, control: asRoot, acts: "kernel-sysctl kernel-sys"},
		{what: "write to `/proc/sysrq-trigger`", standard: held, strict: held, control: asRoot, absent: "ENOENT", acts: "kernel-sysrq"},
		{what: "change its personality", standard: held, strict: held, acts: "kernel-personality"},
		{what: "push input into a terminal (`TIOCSTI`)", standard: held, strict: held, control: asRoot, attacks: true, acts: "kernel-terminal"},
		{what: "use System V shared memory of other programs", standard: open, strict: held, acts: "kernel-segment"},
		{what: "use POSIX message queues", standard: held, strict: held, acts: "kernel-queue"},

		{what: "make user namespaces, alone or with others", standard: held, strict: held, acts: "mount-user mount-user-all"},
		{what: "make other namespaces", standard: held, strict: held, control: asRoot, acts: "mount-unshare"},
		{what: "mount and unmount, by the old calls and the new", standard: held, strict: held, control: asRoot, attacks: true,
			acts: "mount-mount mount-bind mount-umount mount-context mount-pick mount-tree mount-move mount-attributes"},
		{what: "change its root (`chroot`, `pivot_root`)", standard: held, strict: held, control: asRoot, attacks: true, acts: "mount-root mount-pivot"},
		{what: "enter namespaces of process 1", standard: held, strict: held, control: asRoot, attacks: true, acts: "mount-enter"},
	}
}

// markdown returns the table as docs/security.md has it.
func markdown(rows []hostileRow) string {
	var b strings.Builder
	b.WriteString("| act | `standard` | `strict` |\n|---|---|---|\n")
	for _, r := range rows {
		cell := func(s standing) string {
			if r.grant != "" && s == held {
				return string(s) + "; allowed with " + r.grant
			}
			return string(s)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.what, cell(r.standard), cell(r.strict))
	}
	return b.String()
}
