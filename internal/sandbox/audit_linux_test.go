//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/testrun"
)

// TestParseAuditRecord: these are of Linux 6.18.
func TestParseAuditRecord(t *testing.T) {
	const at = "audit(1795681589.012:2): domain=160e396b8 "
	for text, want := range map[string]Denial{
		`blockers=fs.read_file path="/root/.bashrc" dev="vda" ino=1225`:                                                 {Call: "read", Detail: "/root/.bashrc"},
		`blockers=fs.read_file path=2F7372762F61202262 dev="vda" ino=9961473`:                                           {Call: "read", Detail: `/srv/a "b`},
		`blockers=fs.read_dir path="/srv" dev="vda" ino=246945`:                                                         {Call: "read", Detail: "/srv"},
		`blockers=fs.make_dir path="/srv" dev="vda" ino=246945`:                                                         {Call: "write", Detail: "/srv"},
		`blockers=fs.remove_file,fs.refer path="/srv" dev="vda" ino=246945`:                                             {Call: "write", Detail: "/srv"},
		`blockers=fs.truncate path=2F7372762F61202262 dev="vda" ino=9961473`:                                            {Call: "write", Detail: `/srv/a "b`},
		`blockers=fs.execute,fs.read_file path="/srv/exe" dev="vda" ino=9961474`:                                        {Call: "read", Detail: "/srv/exe"},
		`blockers=fs.write_file,fs.read_file path=2F7372762F2339393631343735202864656C6574656429 dev="vda" ino=9961475`: {Call: "write", Detail: "/srv/#9961475 (deleted)"},
		`blockers=fs.read_file path=2F726F6F742F68C3A9 dev="vda" ino=10036753`:                                          {Call: "read", Detail: "/root/hé"},
		`blockers=scope.signal opid=30090 ocomm="t"`:                                                                    {Call: "signal process", Detail: "30090 t"},
		`blockers=ptrace opid=30090 ocomm="t"`:                                                                          {Call: "look into process", Detail: "30090 t"},
		`blockers=net.connect_tcp daddr=127.0.0.1 dest=443`:                                                             {Call: "connect", Detail: "127.0.0.1:443"},
		"blockers=fs.read_file path=2F1B5B316D0A dev=\"vda\" ino=1":                                                     {Call: "read", Detail: `"/\x1b[1m\n"`}, // a terminal's orders
		"blockers=fs.read_file path=2FFF dev=\"vda\" ino=1":                                                             {Call: "read", Detail: `"/\xff"`},
		`blockers=fs.read_file path="/` + strings.Repeat("a", 4000) + `" dev="vda" ino=1`:                               {Call: "read", Detail: "/" + strings.Repeat("a", maxDetail-1) + "…"},
		`blockers=fs.of_the_future path="/a"`:                                                                           {Call: "write", Detail: "/a"},
		`blockers=of.the_future other=1`:                                                                                {Call: "of.the_future"},
	} {
		r, err := parseAuditRecord(at + text)
		if err != nil || r.denial != want || r.domain != 0x160e396b8 || !r.at.Equal(time.UnixMilli(1795681589012)) || r.pid != 0 || r.ended {
			t.Errorf("%s\nis %+v, %v; want %+v", text, r, err, want)
		}
	}
	r, err := parseAuditRecord(at + `status=allocated mode=enforcing pid=30093 uid=0 exe="/tmp/t" comm="t"`)
	if err != nil || r.pid != 30093 || r.ended {
		t.Errorf("a domain's begin is %+v, %v", r, err)
	}
	r, err = parseAuditRecord(at + "status=deallocated denials=18")
	if err != nil || r.pid != 0 || !r.ended {
		t.Errorf("a domain's end is %+v, %v", r, err)
	}
	for _, text := range []string{
		"", "domain=1 blockers=fs.read_file", "audit(1.2:3):", "audit(1.2:3): ", "audit(x.2:3): domain=1 status=deallocated", at, at + "status=other",
		at + "status=allocated", at + "status=allocated pid=-1", at + "status=allocated pid=0", "audit(1.2:3): domain=q status=deallocated",
	} {
		if r, err := parseAuditRecord(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

// book is an auditLog with runs of the names.
type book struct {
	t *testing.T
	auditLog
	told map[string][]string
	runs map[string]*AuditedRun
}

func newBook(t *testing.T, names ...string) *book {
	b := &book{t: t, auditLog: newAuditLog(), told: make(map[string][]string), runs: make(map[string]*AuditedRun)}
	for _, name := range names {
		b.runs[name] = &AuditedRun{told: make(map[Denial]bool), denied: func(d Denial) { b.told[name] = append(b.told[name], d.String()) }}
	}
	return b
}

// bookStart is when the runs of a book are started.
var bookStart = time.UnixMilli(1795681589000)

func (b *book) hear(after time.Duration, format string, args ...any) {
	b.t.Helper()
	at := bookStart.Add(after)
	r, err := parseAuditRecord(fmt.Sprintf("audit(%d.%03d:1): ", at.Unix(), at.UnixMilli()%1000) + fmt.Sprintf(format, args...))
	mustDo(b.t, err)
	b.add(r)
}

func (b *book) start(name string, pid int) { b.claim(pid, auditedProcess{b.runs[name], bookStart}) }

func (b *book) want(name string, want ...string) {
	b.t.Helper()
	if got := b.told[name]; !slices.Equal(got, want) {
		b.t.Errorf("run %s was told of %q, want %q", name, got, want)
	}
}

// TestAuditLog: a run is told of its own domains' denials, in which order ever its start and they are heard of.
func TestAuditLog(t *testing.T) {
	const (
		read  = `domain=%x blockers=fs.read_file path="/%s"`
		first = "domain=%x status=allocated mode=enforcing pid=%d uid=0"
		last  = "domain=%x status=deallocated denials=1"
	)
	t.Run("two runs", func(t *testing.T) {
		b := newBook(t, "a", "b")
		b.start("a", 10)
		b.hear(0, read, 1, "one")
		b.hear(0, read, 2, "two") // before its start is known
		b.hear(0, read, 3, "of somebody else")
		b.hear(0, first, 1, 10)
		b.hear(0, first, 2, 20)
		b.hear(0, first, 3, 30)
		b.start("b", 20)
		b.hear(0, read, 1, "three")
		b.hear(0, read, 1, "three")
		b.hear(0, read, 2, "four")
		b.want("a", "read /one", "read /three")
		b.want("b", "read /two", "read /four")
		b.hear(0, last, 1)
		b.hear(0, read, 1, "of another domain with this number")
		b.forget(b.runs["b"])
		b.hear(0, read, 2, "too late")
		b.want("a", "read /one", "read /three")
		b.want("b", "read /two", "read /four")
	})
	t.Run("what had the pid before", func(t *testing.T) {
		b := newBook(t, "a")
		b.hear(-time.Second, read, 1, "before")
		b.hear(-time.Second, first, 1, 10)
		b.start("a", 10)
		b.hear(-time.Second, first, 1, 10)
		b.hear(time.Second, read, 1, "of that domain")
		b.want("a")
		b.hear(-auditTick/2, read, 2, "own")
		b.hear(-auditTick/2, first, 2, 10)
		b.want("a", "read /own")
	})
	t.Run("a domain within it", func(t *testing.T) {
		b := newBook(t, "a")
		b.start("a", 10)
		b.hear(0, first, 1, 10)
		b.hear(0, read, 2, "within")
		b.hear(0, first, 2, 10)
		b.want("a")
	})
	t.Run("bounds", func(t *testing.T) {
		b := newBook(t, "a")
		for i := range 10 * maxUnclaimed {
			b.hear(0, read, 100+i, "of somebody else")
		}
		if len(b.unclaimed) != maxUnclaimed || cap(b.unclaimed) > 2*maxUnclaimed {
			t.Errorf("%d records are kept, in room for %d", len(b.unclaimed), cap(b.unclaimed))
		}
		b.start("a", 10)
		b.hear(0, first, 1, 10)
		for i := range 10 * maxAudited {
			b.hear(0, read, 1, fmt.Sprint(i))
		}
		if len(b.told["a"]) != maxAudited || len(b.runs["a"].told) != maxAudited {
			t.Errorf("%d denials were told, %d are known", len(b.told["a"]), len(b.runs["a"].told))
		}
	})
}

// TestAuditedRun: what Landlock refuses to a run is heard of by the kernel's audit, after execve(2) and of all its processes;
// what a domain of its own is refused is not logged.
func TestAuditedRun(t *testing.T) {
	withAudit(t)
	log := new(AuditLog)
	defer log.Close()
	denials := make(chan Denial, 256)
	audited, err := log.Follow(func(d Denial) { denials <- d })
	mustDo(t, err)

	outside := realDir(t)
	mustDo(t, os.WriteFile(outside+"/secret", []byte("content"), 0o644))
	mustDo(t, os.WriteFile(outside+"/odd name", []byte("content"), 0o644))
	p, workspace := typical(t)
	p.Audit = audited
	other, _ := typical(t) // nobody has asked for it
	r, silent := startRun(t, p), startRun(t, other)

	silent.cannot(syscall.EACCES, "read", outside+"/odd name")
	r.cannot(syscall.EACCES, "read in a domain", outside+"/secret")
	r.cannot(syscall.EACCES, "read", outside+"/secret")
	r.cannot(syscall.EACCES, "read", outside+"/odd name")
	r.can("read", "/etc/passwd")
	r.can("write", workspace+"/file")
	r.cannot(syscall.EACCES, "write", outside+"/new")
	r.cannot(syscall.EPERM, "kill", fmt.Sprint(os.Getpid()), "0")
	for _, want := range []Denial{
		{Call: "read", Detail: outside + "/secret"}, {Call: "read", Detail: outside + "/odd name"}, {Call: "write", Detail: outside},
		{Call: "signal process", Detail: fmt.Sprintf("%d %s", os.Getpid(), commOf(t))},
	} {
		for got := (Denial{}); got != want; {
			select {
			case got = <-denials:
			case <-testrun.After(t):
				t.Fatalf("nothing was told of %v", want)
			}
		}
	}
	r.end()
	audited.Close()
	mustDo(t, log.Close())
	for _, u := range log.runs.unclaimed {
		if strings.HasPrefix(u.denial.Detail, outside) {
			t.Errorf("the host's audit log has %v of a run that is not to write to it", u.denial)
		}
	}
}

func commOf(t *testing.T) string {
	comm, err := os.ReadFile("/proc/self/comm")
	mustDo(t, err)
	return strings.TrimSpace(string(comm))
}

// withAudit has the kernel's audit be on for a test.
func withAudit(t *testing.T) {
	t.Helper()
	err := auditProblem()
	if err == nil {
		return
	}
	status, asked := askAudit()
	if abi, _ := landlockABI(); abi < auditABI || asked != nil || status.Enabled != 0 {
		t.Skipf("on this host Landlock's records cannot be read: %v", err)
	}
	if !testrun.Soaking() && os.Getenv("CI") == "" {
		t.Skip("only in `make soak`: it switches the host's audit on; TestAuditLog has records that were written down")
	}
	t.Cleanup(func() { mustDo(t, setAudit(0)) })
	mustDo(t, setAudit(1))
	mustDo(t, auditProblem())
}

// setAudit switches the host's audit on or off.
func setAudit(enabled uint32) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message, err := binary.Append(nil, binary.NativeEndian, struct {
		Header unix.NlMsghdr
		Status auditStatus
	}{unix.NlMsghdr{Len: unix.NLMSG_HDRLEN + 16, Type: unix.AUDIT_SET, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK}, auditStatus{Mask: unix.AUDIT_STATUS_ENABLED, Enabled: enabled}})
	if err != nil {
		return err
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var b [256]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT) // it has answered by now
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 {
		return fmt.Errorf("the answer has %d bytes", n)
	}
	if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:]))); errno != 0 {
		return errno
	}
	return nil
}
