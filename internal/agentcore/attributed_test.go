package agentcore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// commandsOf are the ways in which a job has a command run that is not the worker's.
var commandsOf = map[string]func(s *job.Spec, command string){
	"verify":     func(s *job.Spec, command string) { s.Verify = command },
	"loop":       func(s *job.Spec, command string) { s.Flow.Loop = &job.Loop{Command: command} },
	"evaluation": func(s *job.Spec, command string) { s.Flow.Evaluation = &job.Evaluation{Command: command} },
}

// A job's own commands run what the agent wrote: they are a part of its run, by its
// tag, its cgroup, its environment and its limits.
func TestCommandsAreOfTheRun(t *testing.T) {
	for name, set := range commandsOf {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			own, err := os.ReadFile("/proc/self/oom_score_adj")
			if err != nil {
				t.Fatal(err)
			}
			tell := func(file string) string {
				// A process has begun when the core adds to its score.
				return "n=0; while test $n -lt 3000 && test $(cat /proc/$$/oom_score_adj) = " + strings.TrimSpace(string(own)) + "; do n=$((n+1)); sleep 0.01; done; " +
					"{ env | grep -v ^_= | sort; cat /proc/$$/cgroup /proc/$$/oom_score_adj; } > " + filepath.Join(dir, file) + "; "
			}
			c := start(t)
			c.hello()
			c.configure(nil)
			// The folder of a direct job is the same for both.
			c.run("a", spec(tell("worker")+"exit 0", func(s *job.Spec) {
				set(s, tell("command")+"echo '{}'")
				s.Limits.Memory, s.Limits.Processes = 256<<20, 100
			}))
			if o := c.outcome(); !o.Succeeded() {
				t.Errorf("outcome %+v", o)
			}
			worker, err := os.ReadFile(filepath.Join(dir, "worker"))
			if err != nil {
				t.Fatal(err)
			}
			command, err := os.ReadFile(filepath.Join(dir, "command"))
			if err != nil {
				t.Fatal(err)
			}
			if string(worker) != string(command) || !strings.Contains(string(worker), job.RunTagVariable+"=") {
				t.Errorf("the worker ran with\n%s\nthe command with\n%s", worker, command)
			}
			c.end()
		})
	}
}

// They end with the run, too, with all that they have started.
func TestCommandsEndWithTheRun(t *testing.T) {
	const deaf = "trap '' INT TERM; (trap '' INT TERM; setsid env -i sleep 300) & echo up > up; sleep 301; sleep 302"
	for name, set := range commandsOf {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			c := start(t)
			c.hello()
			c.configure(func(s *ipc.Configure) { // it is deaf: only the kill ends it
				s.Stop.Interrupt, s.Stop.Terminate = job.Duration(50*time.Millisecond), job.Duration(50*time.Millisecond)
			})
			c.run("a", spec("exit 0", func(s *job.Spec) {
				set(s, deaf)
				s.Workspace = job.Workspace{Path: folder, Isolation: job.Direct}
			}))
			for {
				if _, err := os.Stat(filepath.Join(folder, "up")); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "a", Attempt: 1, Class: job.Timeout, Reason: "too long"}, nil)
			if o := c.outcome(); o.State != job.RunFailed || o.Class != job.Timeout || o.Message != "too long" {
				t.Errorf("outcome %+v", o)
			}
			c.nothingLeft()
			c.end()
		})
	}
}
