package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperEat uses so many bytes of memory, says so, and waits for the end of its input.
func helperEat(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	b := make([]byte, n)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	fmt.Println("full")
	return int(b[0]) - 1
}

// limitedHost opens a Host that can enforce limits, or skips the test.
func limitedHost(t testing.TB) *Host {
	h := cgroupHost(t)
	if _, err := h.Enforces(); err != nil {
		t.Skip(err)
	}
	for _, v := range h.sys.legacy {
		t.Cleanup(func() { // before the host is closed: every tree has taken its own away
			if left, _ := filepath.Glob(v.base + "/*/cgroup.procs"); len(left) > 0 {
				t.Errorf("cgroups left: %q", left)
			}
		})
	}
	return h
}

const mib = 1 << 20

// eat is a Spec that uses so much memory, by a child of its leader, which passes an exit code of its own on.
func eat(t testing.TB, bytes int64, l *Limits) Spec {
	s := helper(t.Name(), "eat", strconv.FormatInt(bytes, 10))
	s.Path, s.Args = "/bin/sh", []string{"-c", `"$0" "$1"; exit 7`, s.Path, s.Args[0]}
	s.Limits = l
	return s
}

func TestMemoryLimit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		bytes    int64
		own, all int64
		want     *Exceeded
	}{
		{name: "own", bytes: 200 * mib, own: 100 * mib, all: 1000 * mib, want: &Exceeded{Controller: MemoryController, Limit: 100 * mib, Own: true}},
		{name: "all", bytes: 200 * mib, own: 900 * mib, all: 100 * mib, want: &Exceeded{Controller: MemoryController, Limit: 900 * mib}},
		{name: "all, none of its own", bytes: 200 * mib, all: 100 * mib, want: &Exceeded{Controller: MemoryController}},
		{name: "within", bytes: 20 * mib, own: 100 * mib, all: 200 * mib},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := eat(t, tc.bytes, &Limits{Memory: tc.own}) // first: also where this is skipped, it is the helper's user
			h := limitedHost(t)
			if err := h.LimitAll(Limits{Memory: tc.all}); err != nil {
				t.Fatal(err)
			}
			tr := start(t, h, spec)
			if err := tr.Unlimited(*tr.limits); err != nil {
				t.Error(err)
			}
			if state := tr.waitExited(); state.Code != 7 && state.Signal == 0 { // a v2 group is ended as a whole
				t.Errorf("exit %v", state)
			}
			tr.stop(Stages{})
			got := tr.Exceeded()
			if got == nil || tc.want == nil {
				if got != tc.want {
					t.Errorf("got %+v, want %+v", got, tc.want)
				}
			} else if tc.want.Total = tc.all; *got != *tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// A tree is in its cgroups from its first instruction on, with every child of it, and this process is not.
func TestLimitedFromTheStart(t *testing.T) {
	h := limitedHost(t)
	if len(h.sys.legacy) == 0 {
		t.Skip("the controllers are of cgroup v2 here")
	}
	was, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	spec := script(t.Name(), "cat /proc/self/cgroup; echo end")
	spec.Limits = &Limits{Memory: 100 * mib, Processes: 20, CPU: 0.5}
	tr := start(t, h, spec)
	seen := map[string]string{}
	for line := tr.line(); line != "end"; line = tr.line() {
		for _, name := range controllers {
			if path, ok := cgroup1Path(line, name); ok {
				seen[name] = filepath.Base(path)
			}
		}
	}
	for _, name := range controllers {
		if want := runCgroupName(t.Name()); seen[name] != want {
			t.Errorf("%s: in %q, want %q", name, seen[name], want)
		}
	}
	for _, f := range []struct {
		controller, file string
		want             int64
	}{
		{MemoryController, "memory.limit_in_bytes", 100 * mib}, {ProcessesController, "pids.max", 20}, {CPUController, "cpu.cfs_quota_us", 50_000},
	} {
		if got := number(tr.controllerDir(f.controller), f.file); got != f.want {
			t.Errorf("%s: %d, want %d", f.file, got, f.want)
		}
	}
	tr.waitExited()
	tr.stop(Stages{})
	_ = h.onSpawner(func() error {
		for _, file := range []string{"/proc/self/cgroup", "/proc/thread-self/cgroup"} {
			if is, err := os.ReadFile(file); err != nil || string(is) != string(was) {
				t.Errorf("%s: %v, %s\nwant %s", file, err, is, was)
			}
		}
		return nil
	})
}

func TestProcessLimit(t *testing.T) {
	h := limitedHost(t)
	spec := script(t.Name(), "for i in 1 2 3 4 5 6 7 8; do sleep 300 & done; echo forked; wait")
	spec.Limits = &Limits{Processes: 5}
	tr := start(t, h, spec)
	for alive := true; alive && tr.Exceeded() == nil; {
		select {
		case <-tr.Exited(): // a shell that cannot fork gives up
			alive = false
		case <-time.After(time.Millisecond):
		}
	}
	if got := tr.Exceeded(); got == nil || *got != (Exceeded{Controller: ProcessesController, Limit: 5, Own: true}) {
		t.Errorf("got %+v", got)
	}
	tr.stop(Stages{})
}

// What needs no limit gets no cgroup v1, and starts as fast as before.
func TestUnlimitedTreesJoinNothing(t *testing.T) {
	h := limitedHost(t)
	for _, l := range []*Limits{nil, {}} {
		spec := script(t.Name(), "exit 0")
		spec.Limits = l
		tr := start(t, h, spec)
		if len(tr.sys.legacy) != 0 || tr.Unlimited(Limits{}) != nil {
			t.Errorf("limits %v: joined %v", l, tr.sys.legacy)
		}
		tr.waitExited()
		tr.stop(Stages{})
	}
}

// Without cgroups a limit is not enforced, and the tree says so.
func TestUnlimitedSaysWhy(t *testing.T) {
	h := newHost(t, "")
	spec := script(t.Name(), "exit 0")
	spec.Limits = &Limits{Memory: mib}
	tr := start(t, h, spec)
	if err := tr.Unlimited(*spec.Limits); err == nil || !strings.Contains(err.Error(), errNoCgroups.Error()) {
		t.Errorf("of a limit that nobody enforces is told: %v", err)
	}
	tr.waitExited()
	tr.stop(Stages{})
	if e := tr.Exceeded(); e != nil {
		t.Errorf("exceeded %+v", e)
	}
}

// The next start ends what stands in the cgroups v1 of a dead host's runs, though nothing else tells whose it is, and
// removes them.
func TestSweepLegacyCgroups(t *testing.T) {
	for _, tc := range []struct {
		name  string
		sweep func(h *Host) error
	}{
		{"tag", func(h *Host) error { _, err := h.SweepTag(context.Background(), "nobody"); return err }},
		{"runs", func(h *Host) error { _, err := h.SweepRuns(context.Background(), []string{"i/job/1"}); return err }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := limitedHost(t)
			if len(h.sys.legacy) == 0 {
				t.Skip("the controllers are of cgroup v2 here")
			}
			var dirs []string
			for _, v := range h.sys.legacy {
				dir := v.runDir("i/job/1")
				dirs = append(dirs, dir)
				if err := mkdir(dir); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("sleep", "300")
			cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for _, dir := range dirs {
				if err := writeFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)); err != nil {
					t.Error(err)
				}
			}
			if err := tc.sweep(h); err != nil {
				t.Error(err)
			}
			mustBeGone(t, cmd.Process.Pid)
			for _, dir := range dirs {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", dir, err)
				}
			}
		})
	}
}

// The only controller that cgroup v2 has on a host whose others are of v1.
const spareController = "hugetlb"

// Where nobody else is in its cgroup, a host moves into a leaf to give the controllers on, and goes back at its end. It
// runs in a process of its own, which stands in a cgroup of its own.
func TestPlace(t *testing.T) {
	ways := []Spec{helper(t.Name()+"/alone", "place", "alone"), helper(t.Name()+"/crowd", "place", "crowd")}
	mount, _, err := findCgroups()
	if err != nil || !slices.Contains(words(mount.dir, "cgroup.controllers"), spareController) {
		t.Skip("cgroup v2 has no controller to try with", err)
	}
	if control := filepath.Join(mount.dir, "cgroup.subtree_control"); !slices.Contains(words(mount.dir, "cgroup.subtree_control"), spareController) {
		if err := writeFile(control, "+"+spareController); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = writeFile(control, "-"+spareController) }) // after the host is closed
	}
	h := cgroupHost(t)
	if err := writeFile(filepath.Join(h.sys.base.dir, "cgroup.subtree_control"), "+"+spareController); err != nil {
		t.Fatal(err)
	}
	for _, way := range ways {
		tr := start(t, h, way)
		if got := tr.line(); got != "ok" {
			t.Errorf("%s: %s", way.Run, got)
		}
		tr.waitExited()
		tr.stop(Stages{})
	}
}

// helperPlace looks for a place: alone, it must be its own cgroup; beside another process, the one above.
func helperPlace(args []string) int {
	mount, own, err := findCgroups()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if args[0] == "crowd" {
		other := exec.Command("sleep", "300")
		if err := other.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		defer other.Wait()
		defer other.Process.Kill()
	}
	parent, stand, err := place(mount, own, []string{spareController})
	_, now, _ := findCgroups()
	switch {
	case err != nil && args[0] == "alone":
		fmt.Println(err)
	case args[0] == "alone" && (parent != own || stand != own.child(leafName) || now != stand):
		fmt.Printf("place %v, stand %v, now %v; own %v: %v\n", parent, stand, now, own, err)
	case args[0] == "crowd" && (parent != own.up() || stand != own || now != own):
		fmt.Printf("place %v, stand %v, now %v; own %v\n", parent, stand, now, own)
	default:
		// Found again by who stands in the leaf already, e.g. the next program of this process.
		if p, s, err := place(mount, now, []string{spareController}); p != parent || s != stand || err != nil && args[0] == "alone" {
			fmt.Printf("again: place %v, stand %v, %v; own %v\n", p, s, err, own)
			return 1
		}
		h := &Host{sys: system{own: stand, moved: stand != own}}
		h.leaveLeaf()
		if _, now, _ := findCgroups(); now != own {
			fmt.Printf("back in %v; own %v\n", now, own)
			return 1
		}
		if _, err := os.Stat(own.child(leafName).dir); !errors.Is(err, os.ErrNotExist) {
			fmt.Println("the leaf is left:", err)
			return 1
		}
		fmt.Println("ok")
		return 0
	}
	return 1
}

// A run is the kernel's first choice when memory runs out, with all that it starts.
func TestRunsDieFirst(t *testing.T) {
	h := newHost(t, "")
	own := number("/proc/self", "oom_score_adj")
	for _, tc := range []struct {
		limits *Limits
		want   int64
	}{{nil, own}, {&Limits{}, min(own+runOOMScore, maxOOMScore)}} {
		spec := script(t.Name(), "read _; cat /proc/self/oom_score_adj") // of a child
		spec.Limits, spec.PipeStdin = tc.limits, true
		tr := start(t, h, spec)
		_ = tr.Stdin().Close()
		if got := tr.line(); got != strconv.FormatInt(tc.want, 10) {
			t.Errorf("limits %v: %s, want %d", tc.limits, got, tc.want)
		}
		tr.waitExited()
		tr.stop(Stages{})
	}
}

func TestHostLimits(t *testing.T) {
	l := HostLimits()
	if l.Memory < 64*mib || l.Processes < 100 {
		t.Errorf("the host has %+v", l)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 30: "1 GiB", 3 << 29: "1.5 GiB", 100 * mib: "100 MiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
