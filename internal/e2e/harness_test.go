package e2e

// The harness. A test looks like this:
//
//	b := newBench(t)                      // a git repository, a state directory, a scripted model; see bench
//	b.model.Handle("m", scriptmodel.Play(scriptmodel.Edit("a.txt", "x"), scriptmodel.Say("done")))
//	file := b.jobs(obj{"id": "one", "worker": "codex", "model": "m", "workspace": b.workspace(), "instructions": "Do it."})
//	r := b.start("run", file)             // `scheduler run FILE --json`, in a session of its own
//	r.await("the end", func(u *api.Update) bool { return u.State == job.RunCompleted }) // blocks until such an update was printed
//	r.killCore()                          // SIGKILL; also r.kill(), r.signal(sig)
//	r.exit(0)                             // waits for the scheduler's end and checks its exit code
//	b.submit(b.jobsOf("tests", "more.yaml", obj{…})) // `scheduler submit more.yaml`, while it runs
//	j := b.show("one")                    // `scheduler show one --json`; b.status() likewise
//	b.noProcess()                         // within 10 s no process of this state directory is alive
//
// Every failure ends the test (t.Fatal), with the end of scheduler.log. When
// the test ends, whatever it left running is killed by pid and is an error.
//
// Without a worker CLI: jobs of worker "shell" (type TOOL) need nothing.
// Worker CLIs are added with b.use("codex", …), which skips without them.
// b.config may be changed, and b.env added to, until the first start.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// obj is a mapping of a job file or of the configuration; JSON is YAML.
type obj = map[string]any

// keyVariable holds the key for the scripted model.
const keyVariable = "AGENTSCHED_TEST_KEY"

// bench is a user's machine: everything that a run touches, in a fresh folder
// with a short path (a socket's name has 108 bytes at most).
type bench struct {
	t     *testing.T
	dir   string
	repo  string // git repository, branch main, one commit: README.md
	state string
	model *scriptmodel.Server
	// config becomes config.yaml at each start: stop stages of half a second,
	// short retries, three jobs at once.
	config obj
	env    []string // NAME=VALUE, of every scheduler that is started
	within []string // a command that becomes the program behind its arguments; every scheduler is started by it
	// terminal, if it is set, is the controlling one of the next scheduler; see onTerminal.
	terminal *terminal
	runs     []*run
	user     int               // whose everything is; 0 is that of the test
	stray    []string          // durations of the sleeps that the scripts start: none may be alive at the end
	hears    func(body []byte) // sees each request to the model; nil, or set before the first start
}

// unheld lets runs do all that their user may, as on a host without a sandbox.
func (b *bench) unheld() { b.config["sandbox"] = obj{"level": "none"} }

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: dir, repo: filepath.Join(dir, "repo"), state: filepath.Join(dir, "s")}
	t.Cleanup(b.close)
	if b.model, err = scriptmodel.New(scriptmodel.Options{Trace: func(_ string, _ http.Header, body []byte) {
		if b.hears != nil {
			b.hears(body)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	home, tmp := filepath.Join(dir, "home"), filepath.Join(dir, "tmp")
	for _, d := range []string{home, tmp, b.repo} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + tmp, "LANG=C.UTF-8", keyVariable + "=key-of-the-scripted-model",
		"AGENTSCHED_SANDBOX__WRITE=" + b.dir} // by files there jobs tell where they are, and are told to go on
	b.config = obj{
		"concurrency": obj{"max": 3},
		"workers":     obj{},
		"prices":      obj{},
		"stop":        obj{"interrupt": "500ms", "terminate": "500ms", "kill": "10s"},
		"retry":       obj{"base": "50ms", "max": "200ms"},
	}
	b.write(filepath.Join(b.repo, "README.md"), "a repository\n")
	b.git("init", "-q", "-b", "main")
	b.git("add", "-A")
	b.git("commit", "-q", "-m", "start")
	return b
}

// use sets up worker CLIs to ask the scripted model.
func (b *bench) use(kinds ...job.WorkerKind) {
	b.t.Helper()
	for _, kind := range kinds {
		url := b.model.URL()
		if kind != "claude" { // which adds the /v1 itself
			url += "/v1"
		}
		b.config["workers"].(obj)[string(kind)] = obj{"command": []string{cli(b.t, kind)}, "base_url": url, "key_env": keyVariable}
	}
}

// play gives a model its script, and a price of 1 and 4 dollars a million.
func (b *bench) play(model string, s scriptmodel.Script) {
	b.model.Handle(model, s)
	b.config["prices"].(obj)[model] = obj{"input": 1, "output": 4}
}

func (b *bench) workspace() obj { return obj{"path": b.repo} }

// jobs writes a job file and returns its path.
func (b *bench) jobs(jobs ...obj) string {
	b.t.Helper()
	return b.jobsOf("tests", "jobs.yaml", jobs...)
}

// jobsOf writes a job file of a tenant, by a name of its own.
func (b *bench) jobsOf(tenant, name string, jobs ...obj) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	b.write(path, asJSON(b.t, obj{"tenant": tenant, "jobs": jobs}))
	return path
}

// submit gives a job file to the running scheduler; its jobs are durable then.
func (b *bench) submit(file string) {
	b.t.Helper()
	if out, errs, code := b.trySubmit(file); code != 0 {
		b.fatalf("submit %s: exit code %d\n%s%s", file, code, out, errs)
	}
}

func (b *bench) trySubmit(file string) (stdout, stderr string, code int) {
	b.t.Helper()
	return b.command("submit", "--config", b.configFile(), file)
}

// status returns how the scheduler fares; without one, what it would leave out
// of use.
func (b *bench) status() scheduler.Status {
	b.t.Helper()
	out, errs, code := b.command("status", "--json")
	var st scheduler.Status
	if err := json.Unmarshal([]byte(out), &st); err != nil || code != 0 {
		b.fatalf("status: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	return st
}

// start starts a scheduler whose updates are read: args are "run" and its
// arguments without --json.
func (b *bench) start(args ...string) *run {
	b.t.Helper()
	b.write(b.configFile(), asJSON(b.t, b.config))
	r := newRun(b, append(append([]string{"--state", b.state, "--config", b.configFile()}, args...), "--json"))
	b.runs = append(b.runs, r)
	return r
}

func (b *bench) configFile() string { return filepath.Join(b.dir, "config.yaml") }

// command runs a scheduler command to its end, such as "cancel", "one".
func (b *bench) command(args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	cmd := exec.Command(schedulerProgram(), append([]string{"--state", b.state}, args...)...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = b.env, b.dir, b.as(&syscall.SysProcAttr{})
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.fatalf("scheduler %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// show returns a job as the store has it.
func (b *bench) show(name string) api.JobDetail {
	b.t.Helper()
	out, errs, code := b.command("show", name, "--json")
	var j api.JobDetail
	if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 {
		b.fatalf("show %s: exit code %d, %v\n%s%s", name, code, err, out, errs)
	}
	return j
}

// last returns the outcome of a job's last attempt.
func (b *bench) last(j api.JobDetail) *job.Outcome {
	b.t.Helper()
	if n := len(j.Attempts); n > 0 && j.Attempts[n-1].Outcome != nil {
		return j.Attempts[n-1].Outcome
	}
	b.fatalf("job %s has no attempt that ended: %+v", j.Job.Spec.Name, j.Attempts)
	return nil
}

// hand gives everything to an ordinary user, who then runs the programs. Where the
// test is not root's, it is an ordinary user's already.
func (b *bench) hand(user int) {
	b.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	b.user = user
	// testrun.Keep gives the tests a folder of their own for temporary files.
	err := errors.Join(os.Chmod(programs, 0o711), os.Chmod(filepath.Dir(programs), os.ModeSticky|0o777), filepath.WalkDir(b.dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, user, user))
	}))
	if err != nil {
		b.t.Fatal(err)
	}
}

// as has a program run as the user that everything was given to.
func (b *bench) as(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	if b.user != 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(b.user), Gid: uint32(b.user)}
	}
	return attr
}

// git runs git in the repository.
func (b *bench) git(args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", b.repo, "-c", "user.name=e2e", "-c", "user.email=e2e@localhost", "-c", "commit.gpgsign=false", "-c", "safe.directory=*"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// instance returns what the tags of this state directory's processes begin with.
func (b *bench) instance() string {
	data, err := os.ReadFile(filepath.Join(b.state, "instance.json"))
	if err != nil {
		return ""
	}
	var info struct{ Instance string }
	if err := json.Unmarshal(data, &info); err != nil {
		b.fatalf("instance.json: %v", err)
	}
	return info.Instance
}

// emptyWithin is how long what was killed may take to be gone, as testrun counts time.
const emptyWithin = 10 * time.Second

// noProcess checks that within emptyWithin no process carries a tag of this
// state directory, and none of the scripts' own sleeps is alive, tagged or not.
// Processes give no signal of their end to strangers, so it looks at intervals.
func (b *bench) noProcess() {
	b.t.Helper()
	var left []string
	if !testrun.Within(b.t, emptyWithin, func() bool { left = b.alive(); return len(left) == 0 }) {
		b.fatalf("still alive after %s: %s", emptyWithin, strings.Join(left, ", "))
	}
}

// alive lists what noProcess looks for.
func (b *bench) alive() []string {
	var left []string
	for _, p := range b.aliveProcs() {
		left = append(left, p.String())
	}
	return left
}

func (b *bench) aliveProcs() []proc.Proc {
	var all []proc.Proc
	if instance := b.instance(); instance != "" {
		tagged, err := proc.Alive(instance)
		if err != nil {
			b.t.Errorf("look for processes: %v", err)
		}
		all = tagged
	}
	return append(all, sleeping(b.stray)...)
}

// sleeping returns the processes whose command line holds one of the words.
func sleeping(words []string) []proc.Proc {
	var found []proc.Proc
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file) // gone meanwhile: not alive
		for _, w := range words {
			if bytes.HasPrefix(line, []byte("sleep\x00")) && bytes.Contains(line, []byte(w)) {
				var pid int
				fmt.Sscanf(file, "/proc/%d/", &pid)
				found = append(found, proc.Proc{Pid: pid, Comm: "sleep " + w})
			}
		}
	}
	return found
}

// close ends what the test left, which is an error of its own.
func (b *bench) close() {
	defer func() {
		if os.Getenv("AGENTSCHED_KEEP") != "" {
			b.t.Logf("kept: %s", b.dir)
		} else if err := os.RemoveAll(b.dir); err != nil {
			b.t.Error(err)
		}
	}()
	if b.model != nil {
		defer b.model.Close()
	}
	for _, r := range b.runs {
		r.close()
	}
	for _, p := range b.aliveProcs() {
		if !b.t.Failed() {
			b.t.Errorf("the test left a process: %s", p)
		}
		syscall.Kill(p.Pid, syscall.SIGKILL)
	}
	b.noProcess()
}

// fatalf ends the test, with what the programs logged last.
func (b *bench) fatalf(format string, args ...any) {
	b.t.Helper()
	const tail = 6 << 10
	data, _ := os.ReadFile(filepath.Join(b.state, "scheduler.log"))
	b.t.Fatalf(format+"\nscheduler.log ends:\n%s", append(args, data[max(0, len(data)-tail):])...)
}

func (b *bench) write(path, text string) {
	b.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if b.user != 0 {
		if err := os.Chown(path, b.user, b.user); err != nil {
			b.t.Fatal(err)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
