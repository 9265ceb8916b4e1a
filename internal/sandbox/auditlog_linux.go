//go:build amd64 || arm64

package sandbox

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what is kept of the audit log.
const (
	maxUnclaimed = 256 // records of domains that are not known, or not yet, to be a run's
	maxAudited   = 64  // different denials that are told of one run
	maxDetail    = 512 // bytes of what a run has named
)

// auditLog finds among Landlock's records in the kernel's audit log those of runs. The kernel gives what a process puts
// itself into, a domain, a number, and names the process once, after the domain's first denial.
type auditLog struct {
	processes map[int]auditedProcess
	domains   map[uint64]*AuditedRun
	unclaimed []auditRecord // the oldest first
}

// auditedProcess is one of a run's that puts itself into a domain.
type auditedProcess struct {
	run   *AuditedRun
	since time.Time
}

// auditTick is how far the kernel's time of a record may lie behind the clock's.
const auditTick = 20 * time.Millisecond

func newAuditLog() auditLog {
	return auditLog{processes: make(map[int]auditedProcess), domains: make(map[uint64]*AuditedRun)}
}

// claim says that the next domain of a process, which has that pid since then, is the run's. It may be known already.
func (l *auditLog) claim(pid int, p auditedProcess) {
	l.processes[pid] = p
	for _, r := range l.unclaimed {
		if r.pid == pid && l.assign(r) {
			return
		}
	}
}

// add takes in a record, of which the oldest are added first.
func (l *auditLog) add(r auditRecord) {
	switch run := l.domains[r.domain]; {
	case r.ended:
		delete(l.domains, r.domain)
	case run != nil && r.pid == 0:
		run.tell(r.denial)
	case run == nil && (r.pid == 0 || !l.assign(r)):
		if len(l.unclaimed) == maxUnclaimed {
			l.unclaimed = append(l.unclaimed[:0], l.unclaimed[1:]...)
		}
		l.unclaimed = append(l.unclaimed, r)
	}
}

// assign gives the domain that a record tells of to the run of its process, if it has one: a record from before it was
// started is of another process with that pid.
func (l *auditLog) assign(r auditRecord) bool {
	p, ok := l.processes[r.pid]
	if !ok || r.at.Before(p.since.Add(-auditTick)) {
		return false
	}
	delete(l.processes, r.pid) // the domains that it makes in this one are its own affair
	l.domains[r.domain] = p.run
	rest := l.unclaimed[:0]
	for _, u := range l.unclaimed {
		switch {
		case u.domain != r.domain:
			rest = append(rest, u)
		case u.pid == 0:
			p.run.tell(u.denial)
		}
	}
	l.unclaimed = rest
	return true
}

// forget ends what is known of a run.
func (l *auditLog) forget(run *AuditedRun) {
	for pid, p := range l.processes {
		if p.run == run {
			delete(l.processes, pid)
		}
	}
	for domain, of := range l.domains {
		if of == run {
			delete(l.domains, domain)
		}
	}
}

// auditRecord is one of Landlock's records: a denial in a domain, the process that made the domain, or its end.
type auditRecord struct {
	at     time.Time
	domain uint64

	denial Denial
	pid    int  // not 0: the process that has put itself into the domain
	ended  bool // nothing is left in the domain
}

var errNoRecord = errors.New("not a record of Landlock's")

// parseAuditRecord reads one, such as
//
//	audit(1795681589.012:2): domain=160e396b8 blockers=fs.read_file path="/root/.bashrc" dev="vda" ino=1225
//	audit(1795681589.012:2): domain=160e396b8 status=allocated mode=enforcing pid=30093 uid=0 exe="/bin/true" comm="true"
//	audit(1795681589.064:18): domain=160e396b8 status=deallocated denials=18
//
// The words of others in it, such as a path, are in quotes and without a space or a quote in them, or else in hexadecimal.
func parseAuditRecord(text string) (r auditRecord, err error) {
	head, rest, ok := strings.Cut(text, "): ")
	stamp, ok2 := strings.CutPrefix(head, "audit(")
	stamp, _, ok3 := strings.Cut(stamp, ":")
	seconds, millis, ok4 := strings.Cut(stamp, ".")
	if !ok || !ok2 || !ok3 || !ok4 {
		return r, errNoRecord
	}
	s, err := strconv.ParseInt(seconds, 10, 64)
	ms, err2 := strconv.ParseInt(millis, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return r, err
	}
	r.at = time.Unix(s, ms*int64(time.Millisecond))
	fields := make(map[string]string)
	for field := range strings.FieldsSeq(rest) {
		if name, value, ok := strings.Cut(field, "="); ok {
			fields[name] = value
		}
	}
	if r.domain, err = strconv.ParseUint(fields["domain"], 16, 64); err != nil {
		return r, err
	}
	switch blockers := fields["blockers"]; {
	case blockers != "":
		r.denial = auditedDenial(blockers, fields)
	case fields["status"] == "allocated":
		if r.pid, err = strconv.Atoi(fields["pid"]); err != nil {
			return r, err
		}
		if r.pid <= 0 {
			return r, errNoRecord
		}
	case fields["status"] == "deallocated":
		r.ended = true
	default:
		return r, errNoRecord
	}
	return r, nil
}

// auditedDenial is what a run was refused by the blockers of Landlock's, such as "fs.make_reg,fs.refer".
func auditedDenial(blockers string, fields map[string]string) Denial {
	first, _, _ := strings.Cut(blockers, ",")
	kind, _, _ := strings.Cut(first, ".")
	other := func() string { return strings.TrimSpace(fields["opid"] + " " + auditWord(fields["ocomm"])) }
	switch {
	case first == "fs.ioctl_dev":
		return Denial{Call: "ioctl", Detail: auditWord(fields["path"])}
	case first == "fs.change_topology":
		return Denial{Call: "mount", Detail: auditWord(fields["path"])}
	case kind == "fs":
		for b := range strings.SplitSeq(blockers, ",") {
			if b != "fs.execute" && b != "fs.read_file" && b != "fs.read_dir" {
				return Denial{Call: DeniedWrite, Detail: auditWord(fields["path"])}
			}
		}
		return Denial{Call: DeniedRead, Detail: auditWord(fields["path"])}
	case kind == "ptrace":
		return Denial{Call: "look into process", Detail: other()}
	case first == "scope.signal":
		return Denial{Call: "signal process", Detail: other()}
	case first == "net.connect_tcp":
		addr, err := netip.ParseAddr(fields["daddr"])
		port, err2 := strconv.ParseUint(fields["dest"], 10, 16)
		if errors.Join(err, err2) == nil {
			return Denial{Call: "connect", Detail: netip.AddrPortFrom(addr, uint16(port)).String()}
		}
	}
	return Denial{Call: truncated(first)}
}

// auditWord is what audit_log_untrustedstring() of the kernel has written.
func auditWord(value string) string {
	if text, ok := strings.CutPrefix(value, `"`); ok {
		return truncated(strings.TrimSuffix(text, `"`))
	}
	text, err := hex.DecodeString(value)
	if err != nil {
		return truncated(value)
	}
	if word := string(text); utf8.ValidString(word) && strings.IndexFunc(word, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return truncated(word)
	}
	return truncated(strconv.Quote(string(text)))
}

func truncated(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	return strings.ToValidUTF8(text[:maxDetail], "") + "…"
}

// AuditedRun is a run whose processes' denials are heard of in the audit log.
type AuditedRun struct {
	log    *AuditLog
	denied func(Denial)
	told   map[Denial]bool
}

// tell tells a denial once.
func (r *AuditedRun) tell(d Denial) {
	if r.told[d] || len(r.told) >= maxAudited {
		return
	}
	r.told[d] = true
	r.denied(d)
}
