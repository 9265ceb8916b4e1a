package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func addSystemHelpers() {
	helpers["host"] = helperHost
	helpers["eat"] = helperEat
	helpers["place"] = helperPlace
}

// eachWay runs a test with a cgroup for each tree, and without, when the other nets have to hold.
func eachWay(t *testing.T, f func(t *testing.T, h *Host)) {
	t.Run("cgroup", func(t *testing.T) { f(t, cgroupHost(t)) })
	t.Run("plain", func(t *testing.T) { f(t, newHost(t, "")) })
}

// cgroupHost opens a Host that has a cgroup, or skips the test.
func cgroupHost(t testing.TB) *Host {
	h := newHost(t, fmt.Sprintf("proctest-%d", os.Getpid()))
	if h.sys.base.dir == "" {
		t.Skip("no writable cgroup v2 here")
	}
	base := h.sys.base.dir
	t.Cleanup(func() {
		// Runs before the host is closed: nothing but the base may be there once all trees were proven empty.
		if left, _ := filepath.Glob(base + "/*/cgroup.procs"); len(left) > 0 {
			t.Errorf("cgroups left: %q", left)
		}
	})
	return h
}

// waitGone waits for the end of one process by pid, for processes that are not ours to reap.
func waitGone(pid int, deadline time.Time) error {
	fd, err := openPidfd(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pidfd of process %d: %w", pid, err)
	}
	h := handle{fd: fd}
	defer h.close()
	if len(waitDead([]handle{h}, deadline)) > 0 {
		return fmt.Errorf("wait for end of process %d: %w", pid, os.ErrDeadlineExceeded)
	}
	return nil
}

// mustBeGone fails unless the process has ended already: a proof was given, so there is nothing to wait for.
func mustBeGone(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := waitGone(pid, time.Now()); err != nil {
			t.Error(err)
		}
	}
}

func mustLive(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if p, err := readStat(pid); err != nil || !p.alive() {
			t.Errorf("process %d is not alive: %v", pid, err)
		}
	}
}

// waitOrphan waits until a process is a child of ours. Adoption gives no sign by itself, but its parent's end does; that
// parent may be the shell which has forked it and has not got round to its own end.
func waitOrphan(t testing.TB, pid int) {
	t.Helper()
	for {
		p, err := readStat(pid)
		if err != nil {
			t.Fatal(err)
		}
		if p.PPid == os.Getpid() {
			return
		}
		if err := waitGone(p.PPid, time.Now().Add(long)); err != nil {
			t.Fatalf("process %d is not adopted: %v", pid, err)
		}
	}
}

// mustKill sends SIGKILL to one process.
func mustKill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestAliveTellsZombies(t *testing.T) {
	for _, tc := range []struct {
		state   byte
		threads int
		want    bool
	}{
		{'R', 1, true}, {'T', 1, true}, {'D', 9, true}, {'Z', 1, false}, {'Z', 0, false}, {'X', 1, false},
		{'Z', 3, true}, // the first thread has ended, others run
	} {
		if got := (ProcInfo{state: tc.state, threads: tc.threads}).alive(); got != tc.want {
			t.Errorf("state %c with %d threads: got %v", tc.state, tc.threads, got)
		}
	}
}

const statRest = "S 10 20 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 6 7 8 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99 0"

func TestParseStat(t *testing.T) {
	const rest = statRest
	for _, tc := range []struct {
		line string
		comm string // "" means an error
	}{
		{"42 (sleep) " + rest, "sleep"},
		{"42 (a b) " + rest, "a b"},
		{"42 (x) S 1 (y) " + rest, "x) S 1 (y"},
		{"42 (two\nlines) " + rest + "\n", "two\nlines"},
		{"42 () " + rest, ""},
		{"", ""},
		{"42 (sleep", ""},
		{"42 (sleep) S 10 20", ""},
		{"x (sleep) " + rest, ""},
		{"42 (sleep) " + strings.Replace(rest, "20", "q", 1), ""},
	} {
		got, err := parseStat([]byte(tc.line))
		if tc.line != "42 () "+rest && (err != nil) != (tc.comm == "") {
			t.Errorf("%q: got error %v", tc.line, err)
			continue
		}
		if err != nil {
			continue
		}
		want := ProcInfo{Proc: Proc{42, 12345, tc.comm}, PPid: 10, PGid: 20, Sid: 30, state: 'S', threads: 9, envEnd: 99}
		if got != want {
			t.Errorf("%q:\n got %#v\nwant %#v", tc.line, got, want)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sleep) " + statRest))
	f.Add([]byte(") ( S"))
	f.Fuzz(func(t *testing.T, line []byte) {
		p, err := parseStat(line)
		if err == nil && !strings.Contains(string(line), "("+p.Comm+")") {
			t.Errorf("parsed command %q out of %q", p.Comm, line)
		}
	})
}

func TestUnder(t *testing.T) {
	for _, tc := range []struct {
		name, prefix string
		want         bool
	}{
		{"i/7/1", "i", true}, {"i/7/1", "i/", true}, {"i/7/1", "i/7", true}, {"i/7/1", "i/7/1", true},
		{"i/70/1", "i/7", false}, {"i", "i/7", false}, {"i2/7", "i", false}, {"i/7", "", true}, {"", "", false},
		{"", "i", false},
	} {
		if got := under(tc.name, tc.prefix); got != tc.want {
			t.Errorf("under(%q, %q) = %v", tc.name, tc.prefix, got)
		}
	}
}

func TestCgroup2Mount(t *testing.T) {
	const v1 = "30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
	for _, tc := range []struct {
		name, info, mount, root string
		ok                      bool
	}{
		{"unified", "25 1 0:22 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup", "/", true},
		{"hybrid", v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 none rw\n", "/sys/fs/cgroup/unified", "/", true},
		{"container", "25 1 0:22 /docker/abc /mnt/a\\040b rw - cgroup2 cgroup2 rw\n", "/mnt/a b", "/docker/abc", true},
		{"v1 only", v1, "", "", false},
		{"odd", "- cgroup2 \n\n", "", "", false},
	} {
		mount, root, ok := cgroup2Mount(tc.info)
		if mount != tc.mount || root != tc.root || ok != tc.ok {
			t.Errorf("%s: got %q %q %v", tc.name, mount, root, ok)
		}
	}
}

func TestTagIn(t *testing.T) {
	env := []byte("A=1\x00XTAG=no\x00TAG=i/7/1\x00B=TAG=2\x00")
	if got := tagIn(env, "TAG"); got != "i/7/1" {
		t.Errorf("got %q", got)
	}
	if got := tagIn([]byte("TAGS=x\x00"), "TAG"); got != "" {
		t.Errorf("got %q", got)
	}
}

// A process that replaces its program all the time must not lose its tag for a moment: it would be nobody's then. Its
// environment is large, and the tag stands last: read in pieces, it would often be cut short.
func TestReadTagDuringExec(t *testing.T) {
	h := newHost(t, "")
	loop := filepath.Join(t.TempDir(), "loop.sh")
	if err := os.WriteFile(loop, []byte("[ $1 -gt 20000 ] || exec /bin/sh $0 $(($1+1))\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := script(t.Name(), "echo ready; exec /bin/sh "+loop+" 0")
	spec.Env = append(spec.Env, "LARGE="+strings.Repeat("x", 100_000))
	tr := start(t, h, spec)
	tr.line()
	for i := range 1000 {
		if got := readTag(tr.Pid(), DefaultTag); got != t.Name() {
			t.Fatalf("try %d: got %q", i, got)
		}
	}
	if rep := tr.stop(Stages{}); rep.Stage != StageKill {
		t.Errorf("it has ended before the test: %+v", rep)
	}
}

func TestHoldRefusesAReusedPid(t *testing.T) {
	h := newHost(t, "")
	tr := start(t, h, script(t.Name(), "echo ready; exec sleep 300"))
	tr.line()
	p, err := readStat(tr.Pid())
	if err != nil {
		t.Fatal(err)
	}
	p.Start-- // what was read before the pid was given to another process
	if _, ok, err := hold(p); ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
	tr.stop(Stages{})
}

// TestWalkDirs: whatever the file system counts as links, no folder is left out.
func TestWalkDirs(t *testing.T) {
	walk := func(t *testing.T, base string) {
		for _, dir := range []string{"a", "a/b", "a/b/c", "d", "e", "e/f"} {
			dir = filepath.Join(base, dir)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Remove(dir) }) // those in it are gone by then
		}
		var want, got []string
		err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				want = append(want, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		walkDirs(base, func(dir string) { got = append(got, dir) })
		if slices.Sort(got); !slices.Equal(got, want) || len(got) != 7 {
			t.Errorf("got %q; want %q", got, want)
		}
		got = nil
		walkDirs(filepath.Join(base, "none"), func(dir string) { got = append(got, dir) })
		if len(got) != 0 {
			t.Errorf("where nothing is: %q", got)
		}
	}
	t.Run("cgroups", func(t *testing.T) { walk(t, cgroupHost(t).sys.base.dir) })
	t.Run("files", func(t *testing.T) {
		base := t.TempDir()
		if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(base, filepath.Join(base, "link")); err != nil {
			t.Fatal(err)
		}
		walk(t, base)
	})
}
