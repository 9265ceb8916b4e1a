package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// talk is a conversation with a real CLI: a scheduler that serves, its core, the sandbox, and the one job "talk", whose model
// plays a script and keeps what it was told.
type talk struct {
	*bench
	kind job.WorkerKind
	run  *run
	c    *client.Client

	mu    sync.Mutex
	heard []string // the bodies of all requests to the model
}

// acpKind is OpenCode once more, as an agent that speaks ACP.
const acpKind = "acp"

// eachTalker runs the test on every CLI that converses, side by side; without a soak on those of the sample alone.
func eachTalker(t *testing.T, sample string, f func(t *talk)) {
	for _, kind := range []job.WorkerKind{"codex", "claude", "opencode", acpKind} {
		t.Run(string(kind), func(t *testing.T) {
			if !slices.Contains(strings.Fields(sample), string(kind)) {
				testrun.Long(t, "otherwise done with "+sample)
			}
			t.Parallel()
			f(newTalk(t, kind))
		})
	}
}

func newTalk(t *testing.T, kind job.WorkerKind) *talk {
	k := &talk{bench: newBench(t), kind: kind}
	k.hears = func(body []byte) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.heard = append(k.heard, string(body))
	}
	if kind != acpKind {
		k.use(kind)
	} else {
		const variable = "OPENCODE_CONFIG_CONTENT"
		k.env = append(k.env, variable+"="+asJSON(t, obj{
			"provider": obj{"scripted": obj{"npm": "@ai-sdk/openai-compatible", "models": obj{"talk": obj{}},
				"options": obj{"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"}}},
			"enabled_providers": []string{"scripted"}, "model": "scripted/talk", "small_model": "scripted/talk", "autoupdate": false, "share": "disabled",
			"permission": obj{"bash": "ask"},
		}), "OPENCODE_DISABLE_MODELS_FETCH=1")
		k.config["workers"].(obj)[acpKind] = obj{"adapter": "acp", "command": []string{cli(t, "opencode"), "acp"}, "base_url": k.model.URL() + "/v1",
			"key_env": keyVariable, "env": []string{variable, "OPENCODE_DISABLE_MODELS_FETCH"}}
	}
	k.write(filepath.Join(k.repo, "wait.sh"), until(`"$1"`))
	k.write(filepath.Join(k.repo, "run.sh"), "echo run >> runs.txt")
	k.git("add", "-A")
	k.git("commit", "-q", "-m", "scripts")
	return k
}

// begin submits the job, which asks about each command but waits, and starts the scheduler. A question is waited for as long.
func (k *talk) begin(wait string, script scriptmodel.Script) {
	k.t.Helper()
	model := "talk"
	if k.play(model, script); k.kind == acpKind {
		model = "scripted/talk"
	}
	k.serves()
	k.submit(k.jobs(k.task("talk", k.kind, model, obj{
		"capabilities": []string{"read", "edit"}, "limits": obj{"max_attempts": 3},
		"ask": obj{"for": []string{"commands"}, "wait": wait, "rules": []obj{{"command": "sh wait.sh *", "answer": "allow"}}},
	})))
}

// serves starts a scheduler: the first, or another after the last one's end.
func (k *talk) serves() {
	k.t.Helper()
	k.run = k.serve()
	k.c = k.client()
}

// waits is a command that waits for k.goOn.
func (k *talk) waits(name string) scriptmodel.Turn {
	return scriptmodel.Run("sh wait.sh " + k.folder(name))
}

func (k *talk) goOn(name string) { k.write(k.folder(name), "") }

// until blocks until something holds, which the job must live to see.
func (k *talk) until(what string, holds func() bool) {
	k.t.Helper()
	k.eventually(what, func() bool {
		if holds() {
			return true
		}
		if d, err := k.c.Job(k.t.Context(), "talk"); err == nil && d.Job.State.Terminal() && !holds() {
			k.fatalf("the job has ended before this was so: %s\n%s", what, asJSON(k.t, d))
		}
		return false
	})
}

// question blocks until the job's n-th question waits for its answer in an attempt, and returns it.
func (k *talk) question(n, attempt int) (q api.Question) {
	k.t.Helper()
	k.until(fmt.Sprintf("question %d waits in attempt %d", n, attempt), func() bool {
		list, err := k.c.Questions(k.t.Context(), "talk")
		if err != nil || len(list.Questions) < n {
			return false
		}
		q = list.Questions[n-1]
		return q.Waits && q.Attempt == attempt
	})
	return q
}

// questions are those of the job.
func (k *talk) questions() []api.Question {
	k.t.Helper()
	list, err := k.c.Questions(k.t.Context(), "talk")
	if err != nil {
		k.fatalf("questions: %v", err)
	}
	return list.Questions
}

// asks blocks until the job's n-th question is whether it may run a command, and answers it.
func (k *talk) asks(n, attempt int, command string, a api.AnswerQuestion) {
	k.t.Helper()
	if q := k.question(n, attempt); !strings.Contains(q.Command, command) || q.Kind != "command" {
		k.fatalf("question %d is about %q (%s), want %q", n, q.Command, q.Kind, command)
	}
	k.answer(n, a)
}

func (k *talk) answer(n int, a api.AnswerQuestion) {
	k.t.Helper()
	a.By = "ann"
	if _, err := k.c.AnswerQuestion(k.t.Context(), "talk", n, a); err != nil {
		k.fatalf("answer question %d: %v", n, err)
	}
}

// tell tells the job something, and returns the number of the message.
func (k *talk) tell(text string) int {
	k.t.Helper()
	said, err := k.c.Tell(k.t.Context(), "talk", api.Say{Text: text, By: "ann"})
	if err != nil {
		k.fatalf("tell %q: %v", text, err)
	}
	return said.Message.Number
}

// runs blocks until the job's agent runs a command in an attempt.
func (k *talk) runs(command string, attempt int) {
	k.t.Helper()
	u := k.run.await(command, func(u *api.Update) bool {
		return u.Name == "talk" && (u.Entry == job.Completed || u.Event != nil && u.Event.Kind == job.EventCommand && u.Attempt == attempt && strings.Contains(u.Event.Command, command))
	})
	if u.Entry == job.Completed {
		k.fatalf("the job has ended before its agent ran %q: %s", command, asJSON(k.t, k.show("talk")))
	}
}

// ends blocks until the job has ended well, and returns it. Then nothing of its runs is left; the scheduler is stopped.
func (k *talk) ends(answer string) api.JobDetail {
	k.t.Helper()
	k.run.await("the job's end", func(u *api.Update) bool {
		return u.Kind == api.UpdateJob && u.Name == "talk" && u.Entry == job.Completed
	})
	d := k.show("talk")
	if o := k.last(d); !o.Succeeded() || o.Answer != answer {
		k.fatalf("the job has not ended with %q: %s", answer, asJSON(k.t, d))
	}
	k.nothingRuns(d)
	k.run.stop()
	k.noProcess()
	return d
}

// made lists the files that the job's last attempt has changed.
func (k *talk) made(d api.JobDetail) string {
	k.t.Helper()
	var made []string
	for _, f := range k.last(d).Files {
		made = append(made, f.Path)
	}
	return strings.Join(made, " ")
}

// nothingRuns checks that no process of the job's runs is left.
func (k *talk) nothingRuns(d api.JobDetail) {
	k.t.Helper()
	for _, a := range d.Attempts {
		if left, err := proc.Alive(job.RunTag(job.InstanceID(k.instance()), d.Job.ID, a.Number)); err != nil || len(left) > 0 {
			k.fatalf("attempt %d has left %v (%v)", a.Number, left, err)
		}
	}
}

// modelHeard reports whether the model was told some words.
func (k *talk) modelHeard(words string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.heard, func(body string) bool { return strings.Contains(body, words) })
}
