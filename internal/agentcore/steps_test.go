package agentcore_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/exec"
)

// stepStore is a scheduler's store of the steps of one job, which answers a core;
// without a map it knows no such calls.
type stepStore struct {
	mu    sync.Mutex
	steps map[string]ipc.Step
}

func (s *stepStore) open(steps map[string]ipc.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = steps
}

func (s *stepStore) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steps)
}

func (s *stepStore) answer(method string, params json.RawMessage) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps == nil {
		return nil, ipc.MethodNotFound(method)
	}
	switch method {
	case ipc.MethodStoreStep:
		var r ipc.StoreStep
		if err := json.Unmarshal(params, &r); err != nil {
			return nil, err
		}
		old, ok := s.steps[r.Step.ID]
		switch {
		case ok && old.Inputs != r.Step.Inputs:
			return ipc.StoreStepResult{Refused: "stored for " + old.Inputs}, nil
		case ok:
			return ipc.StoreStepResult{Step: old, FromStore: true}, nil
		}
		s.steps[r.Step.ID] = r.Step
		return ipc.StoreStepResult{Step: r.Step}, nil
	case ipc.MethodListSteps: // a page of one
		var r ipc.ListSteps
		if err := json.Unmarshal(params, &r); err != nil {
			return nil, err
		}
		behind := slices.DeleteFunc(slices.Sorted(maps.Keys(s.steps)), func(id string) bool { return id <= r.After })
		if len(behind) == 0 {
			return ipc.ListStepsResult{}, nil
		}
		return ipc.ListStepsResult{Steps: []ipc.Step{s.steps[behind[0]]}, More: len(behind) > 1}, nil
	}
	return nil, ipc.MethodNotFound(method)
}

// stepper is a worker in shell that does the steps a, b and c which it was not
// given, each of which adds a line to a file of the workspace.
const stepper = `read task; answer=; case $task in *'"home"'*) ;; *) exit 9;; esac
do_step() {
	case $task in *"\"$1\":{"*) return;; esac
	echo "$1" >>done.txt
	echo "{\"type\":\"step\",\"step\":\"$1\",\"inputs\":\"$2\",\"result\":{\"of\":\"$1\"}}"
	while read answer; do
		case $answer in
		*'"checkpoint"'*) wanted=1;;
		*'"step_stored"'*) break;;
		*) echo "{\"type\":\"result\",\"status\":\"failed\",\"class\":\"UNKNOWN\",\"message\":\"told $(echo "$answer" | tr -d '\"')\"}"; exit 0;;
		esac
	done
	if [ "$wanted" ]; then echo '{"type":"result","status":"checkpointed"}'; exit 0; fi
}
`

// TestSteps runs a job in three attempts: one that is asked for a checkpoint, and does not
// count, one that is killed after its next step, and one that finishes.
func TestSteps(t *testing.T) {
	c := start(t, func(cfg *agentcore.Config) { cfg.Adapters["exec"] = exec.Adapter{} })
	defer c.end()
	c.steps.open(map[string]ipc.Step{})
	c.hello()
	script := stepper + `
		case $task in *'"attempt":1,'*) echo '{"type":"text","text":"go"}'; read first; wanted=1;; esac
		do_step a 1
		do_step b 2
		case $task in *'"attempt":2,'*) kill -9 $$;; esac
		do_step c 3
		echo "{\"type\":\"result\",\"status\":\"completed\",\"answer\":\"$(tr '\n' ' ' <done.txt)\"}"`
	c.configure(func(s *ipc.Configure) {
		s.Workers = map[job.WorkerKind]job.WorkerSettings{"mine": {Adapter: "exec", Command: []string{"/bin/sh", "-c", script}}}
	})
	id := job.NewID()
	s := spec("work", func(s *job.Spec) { s.Type, s.Worker, s.Limits.MaxAttempts = job.WorkerTask, "mine", 2 })
	choice := job.Choice{Worker: "mine"}
	begin := func(attempt int) {
		t.Helper()
		var a ipc.PermitAnswer
		c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: id, Tenant: s.Tenant, Attempt: attempt, Choice: choice, Workspace: s.Workspace, Limits: s.Limits}, &a)
		if a.Permit == nil {
			t.Fatalf("refused: %+v", a.Rejection)
		}
		c.must(ipc.MethodSubmitJob, ipc.SubmitJob{Permit: a.Permit.ID, Job: id, Attempt: attempt, Choice: choice, Spec: s, HasSteps: c.steps.len() > 0}, nil)
	}
	checkpoint := func(attempt int) bool {
		t.Helper()
		var r ipc.CheckpointResult
		c.must(ipc.MethodCheckpointJob, ipc.CheckpointJob{Job: id, Attempt: attempt, Reason: "make room"}, &r)
		return r.Asked
	}

	begin(1)
	c.await(saying("go"))
	if checkpoint(7) || !checkpoint(1) {
		t.Error("the checkpoint was asked of the wrong attempt")
	}
	if o := c.outcome(); o.State != job.Checkpointed || o.Message != "make room" || o.Class != job.NoError {
		t.Fatalf("attempt 1: %+v", o)
	}
	if checkpoint(1) {
		t.Error("a checkpoint was asked of a run that has ended")
	}
	begin(2)
	if o := c.outcome(); o.State != job.RunFailed || o.Class != job.Crash {
		t.Fatalf("attempt 2: %+v", o)
	}
	begin(3)
	if o := c.outcome(); o.State != job.RunCompleted || o.Answer != "a b c " {
		t.Fatalf("attempt 3: %+v; want each step done once", o)
	}
	var steps []string
	for len(c.events) > 0 {
		if e := <-c.events; e.Kind == job.EventStep {
			steps = append(steps, fmt.Sprintf("%d %s %s %s", e.Attempt, e.Step, e.Inputs, e.Kept))
		}
	}
	if want := "1 a 1 fresh,2 a 1 store,2 b 2 fresh,3 a 1 store,3 b 2 store,3 c 3 fresh"; strings.Join(steps, ",") != want {
		t.Errorf("steps %q, want %s", steps, want)
	}
}

func TestRefusedStep(t *testing.T) {
	c := start(t, func(cfg *agentcore.Config) { cfg.Adapters["exec"] = exec.Adapter{} })
	defer c.end()
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Workers = map[job.WorkerKind]job.WorkerSettings{"shell": {Adapter: "exec", Command: []string{"/bin/sh", "-c", stepper + "do_step a 2"}}}
	})
	outcome := func(steps map[string]ipc.Step) job.Outcome {
		t.Helper()
		c.steps.open(steps)
		c.run(job.NewID(), spec("work", func(s *job.Spec) { s.Type = job.WorkerTask }))
		return c.outcome()
	}
	if o := outcome(nil); !strings.Contains(o.Message, "again:true") {
		t.Errorf("a scheduler that stores none: %+v", o)
	}
	o := outcome(map[string]ipc.Step{"a": {ID: "a", Inputs: "1", Result: json.RawMessage(`1`)}})
	if !strings.Contains(o.Message, "stored for 1") || strings.Contains(o.Message, "again") {
		t.Errorf("another step's id: %+v", o)
	}
}
