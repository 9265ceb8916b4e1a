//go:build linux

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/faults/act"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/job"
)

// scene is where a plan is played: fresh folders with short names (a socket's
// has 108 bytes at most), a census, and one run of the scheduler after another.
type scene struct {
	tb     testing.TB
	plan   *plan
	dir    string
	state  string
	idle   []string                 // instances whose empty cgroups may be left: a scheduler that was killed, and stands by since then
	states []string                 // further state directories: of the hosts of a fleet
	runOf  func(job.ID, int) string // the tag of an attempt; nil: that of the one host
	files  []string                 // of the jobs
	census *census
	marks  *marks
	runs   []*run

	cancelled map[string]bool // jobs that were cancelled, by name
	struck    map[faultKind]int
	attempts  int
	calls     sync.WaitGroup // to the scheduler, that last
	reloads   int
	clock     time.Duration // how far the wall clock has jumped
	jumped    map[int]bool  // the processes that see it, by pid
	undo      []undo        // what lasts, in the order of striking
}

// undo ends what lasts, at a time or when the scene needs it.
type undo struct {
	at time.Time
	do func() error
}

func newScene(tb testing.TB, p *plan) (*scene, error) {
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		return nil, err
	}
	s := &scene{
		tb: tb, plan: p, dir: dir, state: filepath.Join(dir, "s"), marks: newMarks(),
		cancelled: map[string]bool{}, struck: map[faultKind]int{},
	}
	for _, sub := range []string{"s", "home", "tmp", "tears", "shared/below"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if p.SmallDisk {
		if err := syscall.Mount("agentsched", s.state, "tmpfs", 0, "size=16m,mode=0700"); err != nil {
			return nil, fmt.Errorf("mount a tmpfs: %w", err)
		}
	}
	if s.census, err = newCensus(p, s.socket(), s.marks); err != nil {
		return nil, err
	}
	if err := s.write("config.yaml", s.config()); err != nil {
		return nil, err
	}
	s.files, err = s.writeJobs()
	return s, err
}

func (s *scene) socket() string { return filepath.Join(s.dir, "w.sock") }

func (s *scene) write(name string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ") // JSON is YAML
	if err != nil {
		return err
	}
	// As a whole: a scheduler that is told to read it again, twice in a row, must not
	// find it empty.
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// obj is a mapping of a job file or of the configuration.
type obj = map[string]any

// config has everything that waits wait but for a moment.
func (s *scene) config() obj {
	workers := obj{}
	for _, kind := range []string{kindA, kindB, kindSentinel} {
		workers[kind] = obj{"adapter": "exec", "command": []string{program("puppet"), "worker", s.census.socket, kind}}
	}
	concurrency := obj{"max": s.plan.Max, "per_worker": s.plan.PerKind, "each_tenant": s.plan.PerTenant}
	safeStop := "drain"
	if s.plan.StopAll {
		safeStop = "stop"
	}
	// A kind that crashes is left alone for a moment only; the jobs go on then.
	heartbeat := obj{"interval": "100ms", "hang_after": "2s"}
	if s.plan.Lapse {
		heartbeat["permit_validity"] = lapseAfter.String()
	}
	burst := obj{"count": 8, "within": "10s", "cool_down": "300ms"}
	return obj{
		"concurrency": concurrency,
		"workers":     workers,
		"stop":        obj{"interrupt": "100ms", "terminate": "100ms", "kill": "3s"},
		"heartbeat":   heartbeat,
		"retry":       obj{"base": fmt.Sprintf("%dms", 20+s.reloads), "max": "100ms"},
		"cores":       obj{"count": s.plan.Cores, "restarts": obj{"count": 3, "within": "10s", "isolate": "500ms"}},
		"breaker":     obj{"window": "10s", "bucket_period": "1s", "open_for": "200ms"},
		"watchdog":    obj{"stall_after": "2s"}, // a worker that is stopped never does anything again
		"escalation": obj{
			"worker_crashes": burst, "core_crashes": burst,
			"disk":       obj{"min_free_bytes": 64 << 10, "min_free_ratio": 0.01, "cool_down": "300ms"},
			"clock_jump": obj{"above": "2s", "cool_down": "500ms"},
			"safe_stop":  safeStop,
		},
	}
}

// writeJobs writes a job file for each tenant, and returns their names.
func (s *scene) writeJobs() (files []string, err error) {
	byTenant := map[string][]obj{}
	for _, j := range s.plan.Jobs {
		o, err := s.job(&j)
		if err != nil {
			return nil, err
		}
		byTenant[j.Tenant] = append(byTenant[j.Tenant], o)
	}
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		name := "jobs-" + tenant + ".yaml"
		if err := s.write(name, obj{"tenant": tenant, "jobs": byTenant[tenant]}); err != nil {
			return nil, err
		}
		files = append(files, filepath.Join(s.dir, name))
	}
	return files, nil
}

func (s *scene) job(j *jobPlan) (obj, error) {
	acts, err := json.Marshal(j.Acts)
	if err != nil {
		return nil, err
	}
	limits := obj{"max_attempts": j.MaxAttempts}
	if j.TimeoutMS > 0 {
		limits["timeout"] = fmt.Sprintf("%dms", j.TimeoutMS)
	}
	if j.MaxTokens > 0 {
		limits["max_tokens"] = j.MaxTokens
	}
	o := obj{"id": j.Name, "worker": j.Kind, "instructions": string(acts), "limits": limits, "capabilities": []string{"read", "edit", "run_commands"}}
	if s.plan.Level == sandbox.Standard {
		o["network"] = "full" // to reach the suite
	}
	if j.Kind == kindShell {
		o["instructions"] = fmt.Sprintf("exec '%s' shell '%s' shell '%s' '%s'", program("puppet"), s.census.socket, j.Name, acts)
	}
	if j.Fallback != "" {
		o["fallback"] = []string{j.Fallback}
	}
	if len(j.Needs) > 0 {
		o["needs"], o["if"] = j.Needs, "always()"
	}
	if j.Key != "" {
		o["key"], o["on_duplicate"] = j.Key, "serialize"
	}
	if j.Name == sentinel {
		o["priority"] = 10 // it holds its place from the beginning to the end
	}
	if j.Folder != "" {
		o["workspace"] = obj{"path": filepath.Join(s.dir, j.Folder), "isolation": "direct"}
	}
	return o, nil
}

// start starts the scheduler, as a user does to go on.
func (s *scene) start() (*run, error) {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(s.dir, "home"), "TMPDIR=" + filepath.Join(s.dir, "tmp"), "LANG=C.UTF-8",
		"AGENTSCHED_SANDBOX__READ=" + programs, "AGENTSCHED_SANDBOX__LEVEL=" + string(s.plan.Level),
		"AGENTSCHED_SANDBOX__WRITE=" + s.dir, // there jobs note what they do
		"GORACE=halt_on_error=0 log_path=" + filepath.Join(s.dir, "race"),
	}
	command := []string{s.program("scheduler"), "--state", s.state, "--config", filepath.Join(s.dir, "config.yaml")}
	if s.plan.NoCgroup {
		env = append(env, "AGENTSCHED_NO_CGROUP=1")
	}
	if len(s.plan.Tears) > 0 {
		tears, err := json.Marshal(s.plan.Tears)
		if err != nil {
			return nil, err
		}
		env = append(env, act.CoreVariable+"="+s.program("agentcore"), act.TearVariable+"="+string(tears), act.DirVariable+"="+filepath.Join(s.dir, "tears"))
		command = append(command, "--core", program("puppet"))
	}
	command = append(append(command, "run", "--json"), s.files...)
	r, err := startRun(command, env, s.dir, s.marks)
	if err == nil {
		s.runs = append(s.runs, r)
	}
	return r, err
}

func (s *scene) client() *client.Client {
	return client.New(filepath.Join(s.state, "scheduler.sock"))
}

// later has do called after a while, or when the scene needs it.
func (s *scene) later(after time.Duration, do func() error) {
	s.undo = append(s.undo, undo{time.Now().Add(after), do})
}

// undoUntil ends what lasts until now; with all, what lasts longer too.
func (s *scene) undoUntil(now time.Time, all bool) error {
	var errs []error
	var rest []undo
	for _, u := range s.undo {
		if all || !u.at.After(now) {
			errs = append(errs, u.do())
		} else {
			rest = append(rest, u)
		}
	}
	s.undo = rest
	return errors.Join(errs...)
}

// nextUndo returns when the next lasting thing ends; never is a nil channel.
func (s *scene) nextUndo() (<-chan time.Time, func()) {
	if len(s.undo) == 0 {
		return nil, func() {}
	}
	at := s.undo[0].at
	for _, u := range s.undo {
		if u.at.Before(at) {
			at = u.at
		}
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// close ends what is left, and removes the folders.
func (s *scene) close() error {
	errs := []error{s.undoUntil(time.Now(), true)}
	for _, r := range s.runs {
		if !r.over() {
			_ = r.cmd.Process.Kill()
			<-r.ended
		}
	}
	for _, p := range s.processes() {
		_ = syscall.Kill(p.Pid, syscall.SIGKILL)
	}
	for _, dir := range slices.Backward(s.cgroups()) { // those below come first
		_ = os.Remove(dir)
	}
	s.calls.Wait()
	if s.census != nil {
		s.census.close()
	}
	if s.plan.SmallDisk {
		errs = append(errs, syscall.Unmount(s.state, syscall.MNT_DETACH))
	}
	if os.Getenv("AGENTSCHED_KEEP") == "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// story is all that can help to understand a failure.
func (s *scene) story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan: %s", s.plan)
	for i, r := range s.runs {
		fmt.Fprintf(&b, "run %d of %d: %s\n", i+1, len(s.runs), r)
	}
	const size = 8 << 10
	log, _ := os.ReadFile(filepath.Join(s.state, "scheduler.log"))
	fmt.Fprintf(&b, "scheduler.log ends:\n")
	for line := range strings.Lines(string(log[max(0, len(log)-size):])) {
		fmt.Fprintf(&b, "%.500s\n", strings.TrimSuffix(line, "\n"))
	}
	if os.Getenv("AGENTSCHED_KEEP") != "" {
		fmt.Fprintf(&b, "kept: %s\n", s.dir)
	}
	return b.String()
}

// instance returns what the tags of the scene's workers begin with.
func (s *scene) instance() string { return instanceOf(s.state) }

// instances returns those of all hosts.
func (s *scene) instances() (all []string) {
	for _, dir := range append([]string{s.state}, s.states...) {
		if instance := instanceOf(dir); instance != "" {
			all = append(all, instance)
		}
	}
	return all
}

func instanceOf(state string) string {
	data, err := os.ReadFile(filepath.Join(state, "instance.json"))
	if err != nil {
		return ""
	}
	var info struct{ Instance string }
	if err := json.Unmarshal(data, &info); err != nil {
		return ""
	}
	return info.Instance
}

// torn counts the plan's tears that were begun.
func (s *scene) torn() int {
	begun, _ := os.ReadDir(filepath.Join(s.dir, "tears"))
	return len(begun)
}
