package cli

import (
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// TestFailedForItsLead: a job that an agent has submitted fails a run only where nobody says how its lead went.
func TestFailedForItsLead(t *testing.T) {
	lead := api.Job{ID: "lead", Status: &job.Status{State: job.RunCompleted}}
	part := api.Job{ID: "part", Status: &job.Status{State: job.RunFailed}}
	part.Spec.Lead = job.Lead{Job: "lead", Depth: 1}
	if anyFailed([]api.Job{lead, part}) {
		t.Error("the lead has succeeded, and the run has failed")
	}
	if !anyFailed([]api.Job{part}) {
		t.Error("the job that was waited for has failed, and the wait has not")
	}
	lead.Status = part.Status
	if !anyFailed([]api.Job{lead, part}) {
		t.Error("the lead has failed, and the run has not")
	}
}
