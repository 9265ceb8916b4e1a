package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// ordinary is a user without rights.
const ordinary = 65534

// TestHostile has a run try to get out, by testdata/hostile: what is held at a level fails, what is not held or allowed works,
// and each act that fails works with the grant for it, or without a sandbox, or for a process that is no run.
func TestHostile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		user   int
		levels []string
		soak   bool
	}{
		{name: "root", levels: []string{"standard", "strict"}},
		{name: "ordinary user", user: ordinary, levels: []string{"standard"}, soak: true},
		{name: "ordinary user, strict", user: ordinary, levels: []string{"strict"}, soak: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.soak {
				testrun.Long(t, "both levels as root; internal/sandbox tries each call as an ordinary user")
			}
			newWorld(t, tc.user).play(tc.levels)
		})
	}
}

// play does all acts at the levels, and the controls.
func (w *world) play(levels []string) {
	table := hostileTable()
	w.begin(levels[0])
	w.complete(table)
	worked := make(map[string]bool) // acts that some control has done
	for _, level := range levels {
		w.sibling(level)
		got := w.try(level, "", rowsOf(table, func(r hostileRow) bool { return r.job == "" }))
		maps.Copy(got, w.try(level, "hosts", rowsOf(table, func(r hostileRow) bool { return r.job == "hosts" })))
		maps.Copy(got, w.tryModels(level, rowsOf(table, func(r hostileRow) bool { return r.job == "models" })))
		if n := w.names.times(leaked); n > 0 {
			w.b.t.Errorf("%s: a name server was told %d times what the run has found", level, n)
		}
		w.check(level, table, got)
		for act, r := range w.try(level, "granted", rowsOf(table, func(r hostileRow) bool { return r.grant != "" })) {
			if worked[act] = r.OK; !r.OK {
				w.b.t.Errorf("%s: %s fails although it is granted: %s", level, act, r.Errno)
			}
		}
		w.stopped(level, rowsOf(table, func(r hostileRow) bool { return r.attacks }))
		w.endSibling()
	}
	w.sibling("none")
	absent := make(map[string]string) // by act, the error that a kernel without it has
	for _, row := range table {
		for _, act := range row.names() {
			absent[act] = row.absent
		}
	}
	control := func(who string, got map[string]hostileResult) {
		for act, r := range got {
			if !r.OK && r.Errno == absent[act] {
				w.b.t.Logf("this kernel does not have %s (%s)", act, r.Errno)
				r.OK = true
			}
			if worked[act] = worked[act] || r.OK; !r.OK {
				w.b.t.Errorf("%s fails for %s too, so nothing is proven: %s", act, who, r.Errno)
			}
		}
	}
	control("a run that nothing holds", w.try("none", "", rowsOf(table, func(r hostileRow) bool { return r.control == "" && r.job != "models" })))
	control("a run that nothing holds", w.tryModels("none", rowsOf(table, func(r hostileRow) bool { return r.job == "models" })))
	if w.names.times(leaked) == 0 {
		w.b.t.Error("a run that nothing holds cannot tell the name server either, so nothing is proven")
	}
	control("root", w.asRoot(rowsOf(table, func(r hostileRow) bool { return r.control == asRoot })))
	for _, row := range table {
		for _, act := range row.names() {
			if !worked[act] {
				w.b.t.Errorf("%s works for nobody", act)
			}
		}
	}
	w.endSibling()
	w.run.stop()
}

// check wants each act of the table to have gone as it says.
func (w *world) check(level string, table []hostileRow, got map[string]hostileResult) {
	w.b.t.Helper()
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	for _, row := range table {
		for _, act := range row.names() {
			r, done := got[act]
			switch want := row.at(level); {
			case level == "standard" && row.landlock > int(abi):
				// said of each attempt, see sandbox.Host.NotHeld
			case !done:
				w.b.t.Errorf("%s: %s was not done", level, act)
			case r.OK != (want != held):
				w.b.t.Errorf("%s: %s is %s, and its outcome is %v %s", level, act, want, r.OK, r.Errno)
			}
		}
	}
}

// stopped wants a run that goes on attacking to be stopped.
func (w *world) stopped(level string, attacks []hostileRow) {
	w.b.t.Helper()
	id, told := level+"-attacks", w.Public+"/"+level+".world"
	var acts []string
	for _, row := range attacks {
		acts = append(acts, row.names()...)
	}
	script := fmt.Sprintf("%s/hostile %s %s; sleep 600", w.Public, told, strings.Join(acts[:maxAttacks+1], " "))
	w.b.submit(w.b.jobsOf("tests", id+".yaml", with(shell(id, w.b.workspace(), script, nil), obj{"sandbox": obj{"level": level, "read": []string{w.Public}}})))
	w.run.await("the end of "+id, func(u *api.Update) bool {
		return u.Kind == api.UpdateJob && u.Name == job.Name(id) && u.Entry.Terminal()
	})
	j := w.b.show(id)
	if o := w.b.last(j); o.Class != job.SandboxClass || len(j.Attempts) != 1 {
		w.b.t.Errorf("%s: a run that goes on attacking ended with %s: %s, after %d attempts; want %s at the first", level, o.Class, o.Message, len(j.Attempts), job.SandboxClass)
	}
}

// hostileResult is what the program prints of an act.
type hostileResult struct {
	Act   string
	OK    bool
	Errno string
}

// rowsOf returns those rows of a table.
func rowsOf(table []hostileRow, want func(hostileRow) bool) []hostileRow {
	return slices.DeleteFunc(slices.Clone(table), func(r hostileRow) bool { return !want(r) })
}

// complete wants the table to name each act of the program once.
func (w *world) complete(table []hostileRow) {
	out, err := exec.Command(w.Public+"/hostile", "list").Output()
	var all []string
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil {
		w.b.t.Fatal(err)
	}
	var named []string
	for _, row := range table {
		named = append(named, row.names()...)
	}
	slices.Sort(named)
	if !slices.Equal(all, named) {
		w.b.t.Fatalf("the program's acts are %q, the table's %q", all, named)
	}
}

// begin starts the scheduler.
func (w *world) begin(level string) {
	w.b.config["sandbox"] = obj{
		"level": level, "least": "none",
		"read": []string{w.Public, w.Outside, w.Home}, "write": []string{w.Public + "/results", w.Beside},
	}
	w.b.config["concurrency"] = obj{"max": 4}
	w.useModels()
	w.run = w.b.serve()
	if out, errs, code := w.b.command("token", "create", "ci", "--role", "read"); code != 0 {
		w.b.fatalf("token create: exit code %d\n%s%s", code, out, errs)
	}
	w.Daemon, w.Core = w.run.cmd.Process.Pid, w.run.core()
}

// sibling starts another run, of another tenant.
func (w *world) sibling(level string) {
	name := "sibling-" + level
	w.b.submit(w.b.jobsOf("other", name+".yaml", with(
		shell(name, w.b.workspace(), fmt.Sprintf("SERVED=%s exec %s/hostile serve %s", w.Canary, w.Public, w.Served), nil),
		obj{"sandbox": obj{"level": level, "read": []string{w.Public}}})))
	w.b.eventually("the other run is there", func() bool {
		w.Sibling = 0
		paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range paths {
			data, _ := os.ReadFile(path)
			if args := strings.Split(string(data), "\x00"); len(args) > 2 && args[0] == w.Public+"/hostile" && args[1] == "serve" {
				_, _ = fmt.Sscanf(path, "/proc/%d/", &w.Sibling)
			}
		}
		return w.Sibling != 0
	})
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", w.Sibling))
	if err != nil {
		w.b.t.Fatal(err)
	}
	w.Workspace, w.Job = dir, filepath.Join(w.State, "jobs", string(w.b.show(name).Job.ID))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.Sibling))
	if err != nil {
		w.b.t.Fatal(err)
	}
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if dir, found := strings.CutPrefix(variable, "TMPDIR="); found {
			w.Temporary = dir
		}
	}
	for _, dir := range []string{w.Workspace, w.Job, w.Temporary} {
		if err := os.MkdirAll(dir, 0o700); err != nil { // a run that nothing holds needs none
			w.b.t.Fatal(err)
		}
		if err := os.Chown(dir, w.b.user, w.b.user); err != nil {
			w.b.t.Fatal(err)
		}
		w.b.write(dir+"/canary", w.Canary)
	}
}

func (w *world) endSibling() {
	name := ""
	for _, level := range []string{"none", "standard", "strict"} {
		if w.run.seen(func(u *api.Update) bool { return u.Name == job.Name("sibling-"+level) }) > 0 &&
			w.run.seen(func(u *api.Update) bool { return u.Name == job.Name("sibling-"+level) && u.Entry.Terminal() }) == 0 {
			name = "sibling-" + level
		}
	}
	if _, errs, code := w.b.command("cancel", name); code != 0 {
		w.b.fatalf("cancel %s: exit code %d\n%s", name, code, errs)
	}
	w.run.end(job.Name(name), job.RunCancelled)
}

// maxAttacks is how many acts that no honest program does a run may do before the next stops it.
const maxAttacks = 4

// batches divides acts among runs, so that none is stopped.
func batches(rows []hostileRow) [][]string {
	all := [][]string{nil}
	attacks := 0
	for _, row := range rows {
		for _, act := range row.names() {
			if row.attacks {
				if attacks == maxAttacks {
					all, attacks = append(all, nil), 0
				}
				attacks++
			}
			all[len(all)-1] = append(all[len(all)-1], act)
		}
	}
	return all
}

// try does acts as runs at a level and returns how they went. The jobs have no grants, or if they are "granted", all that can
// be, or those for "hosts".
func (w *world) try(level, grants string, rows []hostileRow) map[string]hostileResult {
	t := w.b.t
	t.Helper()
	w.prepare()
	w.names.forget("rebind.test.")
	name := strings.Trim(level+"-"+grants, "-")
	told := w.Public + "/" + name + ".world"
	w.b.write(told, asJSON(t, w.surroundings))
	var jobs []obj
	var files []string
	for i, acts := range batches(rows) {
		id := fmt.Sprintf("%s-%d", name, i)
		file := w.Public + "/results/" + id
		files = append(files, file)
		script := fmt.Sprintf("exec %s/hostile %s %s > %s", w.Public, told, strings.Join(acts, " "), file)
		j := with(shell(id, w.b.workspace(), script, obj{"max_attempts": 1}), obj{
			"env":     []string{"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"},
			"sandbox": obj{"level": level, "read": []string{w.Public}, "write": []string{w.Public + "/results"}},
		})
		switch grants {
		case "granted":
			j["sandbox"], j["network"] = obj{"level": level, "read": []string{w.Public, w.Outside}, "write": []string{w.Public + "/results", w.Beside}}, "full"
		case "hosts":
			j["network"] = []string{"allowed.test:8080", "inward.test:8080", "meta.test:8080", "rebind.test:8080"}
		}
		jobs = append(jobs, j)
	}
	w.b.submit(w.b.jobsOf("tests", name+".yaml", jobs...))
	got := make(map[string]hostileResult)
	for i, file := range files {
		w.run.end(job.Name(jobs[i]["id"].(string)), job.RunCompleted)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.take(got, data)
	}
	return got
}

func (w *world) take(got map[string]hostileResult, data []byte) {
	w.b.t.Helper()
	for line := range bytes.Lines(data) {
		var r hostileResult
		if err := json.Unmarshal(line, &r); err != nil {
			w.b.t.Fatalf("%q: %v", line, err)
		}
		got[r.Act] = r
	}
}

// asRoot does acts as a process of root's that is no run.
func (w *world) asRoot(rows []hostileRow) map[string]hostileResult {
	w.b.t.Helper()
	w.prepare()
	told, dir := w.b.dir+"/root.world", w.b.t.TempDir()
	w.b.write(told, asJSON(w.b.t, w.surroundings))
	secret, err := os.Open(w.Outside + "/secret")
	if err != nil {
		w.b.t.Fatal(err)
	}
	defer secret.Close()
	args := []string{told}
	for _, row := range rows {
		args = append(args, row.names()...)
	}
	cmd := exec.Command(w.Public+"/hostile", args...)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{secret}
	out, err := cmd.Output()
	if err != nil {
		w.b.t.Fatalf("the hostile program as root: %v", err)
	}
	got := make(map[string]hostileResult)
	w.take(got, out)
	return got
}
