package jobfile

import (
	"cmp"
	"fmt"

	"github.com/agentsched/agentsched/job"
)

func (r *reader) readTeams(list []job.Team) {
	for i, t := range list {
		path := fmt.Sprintf("teams[%d]", i)
		if r.Blamed(path) {
			continue
		}
		for _, bad := range t.Validate() {
			r.Failf(path+"."+bad.Field, "%s", bad.Message)
		}
		if r.checkOnce(path+".id", "team", t.ID, r.teams) {
			r.teamsAt = append(r.teamsAt, part{r, path})
			r.jobs.Workflow.Teams = append(r.jobs.Workflow.Teams, t)
		}
	}
}

func (r *reader) readPipelines(list []job.Pipeline) {
	for i := range list {
		path := fmt.Sprintf("pipelines[%d]", i)
		if r.Blamed(path) {
			continue
		}
		p := r.pipeline(path, list[i])
		if r.checkOnce(path+".id", "pipeline", p.ID, r.pipelines) {
			r.pipelinesAt = append(r.pipelinesAt, part{r, path})
			r.jobs.Workflow.Pipelines = append(r.jobs.Workflow.Pipelines, p)
		}
	}
}

func (r *reader) pipeline(path string, p job.Pipeline) job.Pipeline {
	for i := range p.Stages {
		s := &p.Stages[i]
		if s.Job == "" {
			r.Failf(fmt.Sprintf("%s.stages[%d].job", path, i), "is missing, want the id of the job that does the stage's work")
		}
		s.ID = cmp.Or(s.ID, s.Job)
	}
	if p.ID == "" {
		r.Failf(path+".id", "is missing, want a name for the pipeline such as web-testing")
	}
	return p
}

// checkOnce refuses an id that another thing of its sort has; such things are
// told apart across all files.
func (r *reader) checkOnce(path, what string, id job.Name, places map[job.Name]string) bool {
	if first, twice := places[id]; twice {
		r.Failf(path, "%q is the id of the %s at %s already", id, what, first)
		return false
	}
	places[id] = r.place(path)
	return true
}
