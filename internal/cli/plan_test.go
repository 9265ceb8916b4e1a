package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func planSpecs() []job.Spec {
	return []job.Spec{
		{Name: "report", Flow: job.Flow{Needs: []job.Name{"fix", "lint"}, If: "always()\n"}},
		{Name: "scan"},
		{Name: "fix", Flow: job.Flow{Needs: []job.Name{"scan"}, ForEach: &job.ForEach{}}},
		{Name: "lint", Flow: job.Flow{Loop: &job.Loop{}}},
	}
}

func TestPrintPlan(t *testing.T) {
	plan, err := workflow.NewPlan(planSpecs())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := printPlan(&b, plan, planSpecs(), 1); err != nil {
		t.Fatal(err)
	}
	want := `LEVEL  JOB     NEEDS     NOTE
1      scan    -         -
1      lint    -         in a loop
2      fix     scan      for each item of a list
3      report  fix lint  if always()

critical path, 3 jobs: scan, fix, report
4 jobs with 1 worker: 4 rounds
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestPlanJSON(t *testing.T) {
	plan, err := workflow.NewPlan(planSpecs())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(planJSON(plan, planSpecs(), 2))
	want := `{"jobs":[{"id":"scan","level":1,"needs":[],"critical":true},{"id":"lint","level":1,"needs":[],"loop":true},{"id":"fix","level":2,"needs":["scan"],"for_each":true,"critical":true},` +
		`{"id":"report","level":3,"needs":["fix","lint"],"if":"always()\n","critical":true}],"levels":[["scan","lint"],["fix"],["report"]],"critical_path":["scan","fix","report"],"makespan":{"workers":2,"least":3,"most":3}}`
	if err != nil || string(text) != want {
		t.Errorf("got\n%s\nwant\n%s, %v", text, want, err)
	}
}
