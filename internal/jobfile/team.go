package jobfile

import (
	"fmt"

	"github.com/agentsched/agentsched/job"
)

func (r *reader) readTeams(list []team) {
	for i := range list {
		path := fmt.Sprintf("teams[%d]", i)
		if r.Blamed(path) {
			continue
		}
		t := r.team(path, &list[i])
		if r.checkOnce(path+".id", "team", t.ID, r.teams) {
			r.teamsAt = append(r.teamsAt, part{r, path})
			r.jobs.Workflow.Teams = append(r.jobs.Workflow.Teams, t)
		}
	}
}

// team returns a team with its defaults.
func (r *reader) team(path string, given *team) job.Team {
	t := job.Team{ID: job.Name(given.ID), Strategy: job.Strategy(given.Strategy), MaxRestarts: job.DefaultMaxRestarts, MaxSeconds: job.DefaultMaxSeconds}
	if t.Strategy == "" {
		t.Strategy = job.OneForOne
	}
	if given.MaxRestarts != nil {
		t.MaxRestarts = *given.MaxRestarts // 0: the first failure is the team's
	}
	set(r, path+".max_seconds", given.MaxSeconds, &t.MaxSeconds, "is 0, so that no restart would count; want 1 or more")
	for _, m := range given.Members {
		member := job.Member{Job: job.Name(m.Job), Team: job.Name(m.Team), Restart: job.RestartType(m.Restart), Shutdown: job.DefaultShutdown}
		if member.Restart == "" {
			member.Restart = job.Transient
		}
		if m.Shutdown != nil {
			member.Shutdown = *m.Shutdown // 0: at once
		}
		t.Members = append(t.Members, member)
	}
	if t.ID == "" {
		r.Failf(path+".id", "is missing, want a name for the team such as builders")
	}
	for _, bad := range t.Validate() {
		r.Failf(path+"."+bad.Field, "%s", bad.Message)
	}
	return t
}

func (r *reader) readPipelines(list []pipelineEntry) {
	for i := range list {
		path := fmt.Sprintf("pipelines[%d]", i)
		if r.Blamed(path) {
			continue
		}
		p := r.pipeline(path, &list[i])
		if r.checkOnce(path+".id", "pipeline", p.ID, r.pipelines) {
			r.pipelinesAt = append(r.pipelinesAt, part{r, path})
			r.jobs.Workflow.Pipelines = append(r.jobs.Workflow.Pipelines, p)
		}
	}
}

func (r *reader) pipeline(path string, given *pipelineEntry) job.Pipeline {
	p := job.Pipeline{ID: job.Name(given.ID)}
	for i, g := range given.Stages {
		at := fmt.Sprintf("%s.stages[%d]", path, i)
		s := job.Stage{ID: job.Name(g.ID), Job: job.Name(g.Job), Subscribes: events(g.Subscribes), Publishes: events(g.Publishes), Streams: g.Streams}
		if g.Job == "" {
			r.Failf(at+".job", "is missing, want the id of the job that does the stage's work")
		}
		if s.ID == "" {
			s.ID = s.Job
		}
		const none = "is 0; leave it out for the default"
		set(r, at+".batch", g.Batch, &s.Batch, none)
		set(r, at+".max_parallel", g.MaxParallel, &s.MaxParallel, none)
		set(r, at+".buffer", g.Buffer, &s.Buffer, none)
		p.Stages = append(p.Stages, s)
	}
	if p.ID == "" {
		r.Failf(path+".id", "is missing, want a name for the pipeline such as web-testing")
	}
	return p
}

func events(list []string) []job.EventType {
	var all []job.EventType
	for _, e := range list {
		all = append(all, job.EventType(e))
	}
	return all
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
