//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProbe: on this host, and in containers that lack something, made by a seccomp filter around the prober.
func TestProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse   []rule
		listener bool // somebody is asked about calls already
		check    func(t *testing.T, h told)
	}{
		"as it is": {check: func(t *testing.T, h told) {
			if h.Landlock != "" || h.Notify != "" || h.Standard != "" {
				t.Errorf("lacks something: %+v", h)
			}
		}},
		"no Landlock": {refuse: []rule{{nr: unix.SYS_LANDLOCK_CREATE_RULESET, verdict: absent, errno: unix.ENOSYS}}, check: func(t *testing.T, h told) {
			if !strings.Contains(h.Landlock, "Linux 5.13") || h.Standard != h.Landlock {
				t.Errorf("Landlock %q, standard %q", h.Landlock, h.Standard)
			}
		}},
		"Landlock switched off": {refuse: []rule{{nr: unix.SYS_LANDLOCK_CREATE_RULESET, verdict: absent, errno: unix.EOPNOTSUPP}}, check: func(t *testing.T, h told) {
			if !strings.Contains(h.Landlock, "lsm=") {
				t.Errorf("Landlock %q", h.Landlock)
			}
		}},
		"Landlock refused": {refuse: []rule{{nr: unix.SYS_LANDLOCK_RESTRICT_SELF, verdict: refused}}, check: func(t *testing.T, h told) {
			if !strings.Contains(h.Standard, "enter the Landlock domain: operation not permitted") {
				t.Errorf("standard %q", h.Standard)
			}
		}},
		"no namespaces": {refuse: []rule{{nr: unix.SYS_CLONE, verdict: refused, when: []condition{anyOf(0, newNamespaces)}}, {nr: unix.SYS_CLONE3, verdict: absent, errno: unix.ENOSYS},
			{nr: unix.SYS_UNSHARE, verdict: refused}}, check: func(t *testing.T, h told) {
			if h.Namespaces == "" || h.Bwrap == "" || h.Best != Standard {
				t.Errorf("namespaces %q, bubblewrap %q, best %s", h.Namespaces, h.Bwrap, h.Best)
			}
			if len(h.Reasons) != 1 || !strings.HasPrefix(h.Reasons[0], "level strict: ") {
				t.Errorf("reasons %q", h.Reasons)
			}
		}},
		"a profile without pidfd_getfd": {refuse: []rule{{nr: unix.SYS_PIDFD_GETFD, verdict: refused}}, check: func(t *testing.T, h told) {
			if !strings.Contains(h.Notify, "allow seccomp and pidfd_getfd") || strings.Contains(h.Notify, "Linux") {
				t.Errorf("notify %q", h.Notify)
			}
		}},
		"a kernel without pidfd_getfd": {refuse: []rule{{nr: unix.SYS_PIDFD_GETFD, verdict: absent, errno: unix.ENOSYS}}, check: func(t *testing.T, h told) {
			if !strings.Contains(h.Notify, "Linux 5.9") {
				t.Errorf("notify %q", h.Notify)
			}
		}},
		"somebody else is asked": {listener: true, check: func(t *testing.T, h told) {
			if h.Notify == "" || h.Standard != "" || !slices.ContainsFunc(h.NotHeld, func(s string) bool { return strings.Contains(s, "at every address") }) {
				t.Errorf("notify %q, standard %q, not held %q", h.Notify, h.Standard, h.NotHeld)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t, probeUnder(t, tc.refuse, tc.listener)) })
	}
}

// probeUnder has another process probe the host under a filter. A filter of its own is inherited.
func probeUnder(t *testing.T, refuse []rule, listener bool) told {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := os.Pipe()
	mustDo(t, err)
	defer ours.Close()
	m := new(image)
	// The stub is descriptor 3, the report 4, what takes the listener 5.
	m.call("keep these to ourselves", required, unix.SYS_CLOSE_RANGE, 3, 5, unix.CLOSE_RANGE_CLOEXEC)
	m.call("give up new privileges", required, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	mustDo(t, err)
	ends := []*os.File{os.NewFile(uintptr(pair[0]), "a"), os.NewFile(uintptr(pair[1]), "b")}
	defer ends[0].Close()
	defer ends[1].Close()
	socket := -1
	if listener {
		socket = 5
	}
	mustDo(t, m.install(refuse, socket))
	stub, err := m.write(exe, 4)
	mustDo(t, err)
	defer stub.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{stub, theirs, ends[1]}
	cmd.Env = append(os.Environ(), helperEnv+"=probe")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	mustDo(t, theirs.Close())
	if err != nil {
		var report [8]byte
		n, _ := ours.Read(report[:])
		t.Fatalf("%v; %v", err, m.failure(report[:n], exe))
	}
	var h told
	mustDo(t, json.Unmarshal(out, &h))
	return h
}

// TestNotHeld: each level says what it leaves open, as this host has it.
func TestNotHeld(t *testing.T) {
	older := Host{ABI: 1, Notify: &Problem{What: "no notifications", Mend: "update"}, Audit: &Problem{What: "no audit"}}
	newer := Host{ABI: 7, SignalsScoped: true}
	for _, want := range []string{"signals", "truncate(2)", "ioctl(2)", "at every address", "told of files that a run is refused: no audit."} {
		in := func(h Host) bool {
			return slices.ContainsFunc(h.NotHeld(Standard), func(s string) bool { return strings.Contains(s, want) })
		}
		if !in(older) || in(newer) {
			t.Errorf("%q is said of an older host: %v, of a newer: %v", want, in(older), in(newer))
		}
	}
	if len(older.Missing()) != len(newer.Missing())+1 {
		t.Errorf("an older host misses %q, a newer one %q", older.Missing(), newer.Missing())
	}
	for _, level := range Levels() {
		if len(newer.NotHeld(level)) == 0 {
			t.Errorf("level %s leaves nothing open", level)
		}
	}
}
