package workflow_test

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func TestJobsThatWaitForEachOtherByTheirKey(t *testing.T) {
	spec := func(name job.Name, key string, needs ...job.Name) job.Spec {
		s := job.Spec{Name: name, Tenant: "t", Type: job.WorkerTask, Worker: "shell", Instructions: "x", Key: key, Flow: job.Flow{Needs: needs, Joined: true}}
		if key != "" {
			s.OnDuplicate = job.Serialize
		}
		return s
	}
	for _, c := range []struct {
		name  string
		specs []job.Spec
		bad   bool
	}{
		{"the needed one stands behind", []job.Spec{spec("a", "k", "b"), spec("b", "k")}, true},
		{"through another", []job.Spec{spec("a", "k", "m"), spec("m", "", "b"), spec("b", "k")}, true},
		{"the needed one stands before", []job.Spec{spec("b", "k"), spec("a", "k", "b")}, false},
		{"another key", []job.Spec{spec("a", "k", "b"), spec("b", "l")}, false},
	} {
		problems := workflow.Check(c.specs, nil)
		if c.bad != (len(problems) == 1) {
			t.Errorf("%s: %v", c.name, problems)
		}
		if c.bad && (len(problems) == 0 || problems[0].Field != "key" || !strings.Contains(problems[0].Message, "b, which this job needs")) {
			t.Errorf("%s: %v", c.name, problems)
		}
	}
}
