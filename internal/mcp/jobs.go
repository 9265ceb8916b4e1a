package mcp

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

func addJobs(s *server, role string) {
	add(s, role, tool{name: "submit_job", role: submit, effect: adds, about: "Give the scheduler a job for a coding agent: one by its fields, or with `file` all jobs of a job file. It returns when the jobs are durable; wait_jobs waits for them."}, submitJob)
	add(s, role, tool{name: "list_jobs", role: read, about: "List jobs with their states, the newest first."}, listJobs)
	add(s, role, tool{name: "show_job", role: read, about: "Show a job: how it stands, its attempts, what it answered and changed, what was said to it, and what it asks."}, showJob)
	add(s, role, tool{name: "cancel_job", role: operate, effect: destroys, idempotent: true, about: "Cancel a job: one that waits is withdrawn, one that runs is stopped. What it has changed stays in its own folder."}, cancelJob)
	add(s, role, tool{name: "status", role: read, about: "Tell how the scheduler stands: jobs by state, workers with their models, what is out of use."}, status)
}

// oneJob names a job.
type oneJob struct {
	Job string `json:"job" jsonschema:"the job's name (the newest of that name), its id, or 8 or more characters of that"`
}

// jobLine is a job in a list.
type jobLine struct {
	ID      job.ID         `json:"id"`
	Name    job.Name       `json:"name"`
	Tenant  job.Tenant     `json:"tenant"`
	Worker  job.WorkerKind `json:"worker,omitempty"`
	Model   string         `json:"model,omitempty"`
	State   string         `json:"state" jsonschema:"how it stands: pending, running, waiting_approval, completed, failed, cancelled, and others"`
	Ended   bool           `json:"ended" jsonschema:"it will not go on"`
	Waiting string         `json:"waiting,omitempty" jsonschema:"what it waits for"`

	Attempts    int        `json:"attempts"`
	Tokens      int64      `json:"tokens"`
	CostUSD     float64    `json:"cost_usd"`
	SubmittedAt time.Time  `json:"submitted_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	FromRun     string     `json:"from_run,omitempty" jsonschema:"one line about how it went, which may be the run's own words"`
}

// lineOf describes a job.
func lineOf(j *api.Job) jobLine {
	l := jobLine{
		ID: j.ID, Name: j.Spec.Name, Tenant: j.Spec.Tenant, Worker: j.Spec.Worker, Model: j.Spec.Model, State: string(j.State), Ended: j.State.Terminal(),
		Attempts: j.Attempts, Tokens: j.Spent.Tokens(), CostUSD: j.Spent.CostUSD, SubmittedAt: j.CreatedAt, EndedAt: j.CompletedAt,
	}
	if st := j.Status; st != nil {
		l.State, l.Worker = string(st.State), cmp.Or(st.Worker, l.Worker)
		if st.Waiting != nil {
			l.Waiting = string(st.Waiting.Reason)
		}
		l.FromRun = line(st.Line())
	}
	return l
}

// jobList is a list of jobs.
type jobList struct {
	Jobs   []jobLine `json:"jobs"`
	Total  int       `json:"total" jsonschema:"how many there are without the limit; -1 where they are not counted"`
	Next   string    `json:"next,omitempty" jsonschema:"the cursor of the next page; absent after the last"`
	Notice string    `json:"notice"`
}

func linesOf(list []api.Job) []jobLine {
	lines := make([]jobLine, len(list))
	for i := range list {
		lines[i] = lineOf(&list[i])
	}
	return lines
}

func listJobs(ctx context.Context, c *call, in struct {
	State  string `json:"state,omitempty" jsonschema:"only jobs whose latest run is so: pending, running, waiting_approval, completed, failed, cancelled"`
	Tenant string `json:"tenant,omitempty" jsonschema:"only jobs of this tenant"`
	Worker string `json:"worker,omitempty" jsonschema:"only jobs of this kind of worker"`
	Search string `json:"search,omitempty" jsonschema:"only jobs with this text in their name, id, tenant, worker or instructions"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many, 1 to 100; absent: 20"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next of the page before"`
}) (jobList, error) {
	q := client.ListQuery{Tenant: job.Tenant(in.Tenant), Worker: job.WorkerKind(in.Worker), Search: in.Search, Limit: cmp.Or(in.Limit, 20), Cursor: in.Cursor, Newest: true}
	if q.Limit < 1 || q.Limit > 100 {
		return jobList{}, wrong("limit", "is %d, want 1 to 100", in.Limit)
	}
	if in.State != "" {
		q.Status = []job.RunState{job.RunState(in.State)}
	}
	page, err := c.List(ctx, q)
	return jobList{Jobs: linesOf(page.Jobs), Total: page.Total, Next: page.Next, Notice: notice}, err
}

// changed is a job that a tool has changed.
type changed struct {
	Job    jobLine `json:"job"`
	Note   string  `json:"note" jsonschema:"what follows"`
	Notice string  `json:"notice"`
}

func cancelJob(ctx context.Context, c *call, in oneJob) (changed, error) {
	if err := needsJob(in.Job); err != nil {
		return changed{}, err
	}
	j, err := c.Cancel(ctx, in.Job)
	note := "it is cancelled"
	if !j.Job.State.Terminal() {
		note = "its worker is being stopped; show_job tells when it is gone"
	}
	return changed{lineOf(&j.Job), note, notice}, err
}

// jobDetail is a job with all that is known of it.
type jobDetail struct {
	Job          jobLine    `json:"job"`
	Instructions string     `json:"instructions" jsonschema:"what it was told to do, at most 4 KiB"`
	Workspace    string     `json:"workspace,omitempty"`
	Isolation    string     `json:"isolation,omitempty"`
	Attempts     []attempt  `json:"attempts" jsonschema:"the last 10; only the last one with all that it wrote"`
	Messages     []message  `json:"messages" jsonschema:"what people have said to it, the last 20"`
	Questions    []question `json:"questions" jsonschema:"what it asks"`
	Notice       string     `json:"notice"`
}

// attempt is one attempt of a job.
type attempt struct {
	Number    int            `json:"number"`
	Worker    job.WorkerKind `json:"worker"`
	State     string         `json:"state"`
	Class     job.ErrorClass `json:"error_class,omitempty"`
	StartedAt time.Time      `json:"started_at"`
	EndedAt   *time.Time     `json:"ended_at,omitempty"`
	Tokens    int64          `json:"tokens"`
	CostUSD   float64        `json:"cost_usd"`
	DiffStat  string         `json:"diff_stat,omitempty"`
	Branch    string         `json:"branch,omitempty" jsonschema:"of the repository, which holds the work"`
	FromRun   *ofAttempt     `json:"from_run,omitempty"`
}

// ofAttempt is what a run wrote.
type ofAttempt struct {
	Failure string   `json:"failure,omitempty"`
	Answer  string   `json:"answer,omitempty" jsonschema:"the agent's final words, cut if they are long"`
	Files   []string `json:"files" jsonschema:"what it changed, at most 100"`
	Denied  []string `json:"denied" jsonschema:"tool calls that it was refused, at most 20"`
}

// attemptOf describes an attempt, with so many bytes and files of what it wrote.
func attemptOf(a *job.Attempt, answer, files int) attempt {
	out := attempt{Number: a.Number, Worker: a.Choice.Worker, State: string(a.State), StartedAt: a.Started, EndedAt: a.Ended}
	o := a.Outcome
	if o == nil {
		return out
	}
	out.Class, out.Tokens, out.CostUSD, out.DiffStat = o.Class, o.Usage.Tokens(), o.Usage.CostUSD, o.DiffStat
	if o.Commit != nil {
		out.Branch = o.Commit.Branch
	}
	from := &ofAttempt{Answer: whole(o.Answer, answer), Files: []string{}, Denied: []string{}}
	if o.Class != job.NoError {
		from.Failure = whole(o.Message, maxAsked)
	}
	for _, f := range o.Files[:min(len(o.Files), files)] {
		from.Files = append(from.Files, line(string(f.Change)+" "+f.Path))
	}
	for _, d := range o.Denied[:min(len(o.Denied), files, maxListed)] {
		from.Denied = append(from.Denied, line(d))
	}
	out.FromRun = from
	return out
}

// last returns the last n of a list.
func last[T any](list []T, n int) []T { return list[max(len(list)-n, 0):] }

func showJob(ctx context.Context, c *call, in oneJob) (jobDetail, error) {
	out := jobDetail{Attempts: []attempt{}, Messages: []message{}, Questions: []question{}, Notice: notice}
	if err := needsJob(in.Job); err != nil {
		return out, err
	}
	j, err := c.Job(ctx, in.Job)
	if err != nil {
		return out, err
	}
	s := &j.Job.Spec
	out.Job, out.Instructions, out.Workspace, out.Isolation = lineOf(&j.Job), whole(s.Instructions, 4<<10), s.Workspace.Path, string(s.Workspace.Isolation)
	attempts := last(j.Attempts, 10)
	for i := range attempts {
		if i == len(attempts)-1 {
			out.Attempts = append(out.Attempts, attemptOf(&attempts[i], maxAnswer, 100))
		} else {
			out.Attempts = append(out.Attempts, attemptOf(&attempts[i], maxLine, 0))
		}
	}
	said, err := c.Messages(ctx, string(j.Job.ID))
	if err != nil {
		return out, err
	}
	for _, m := range last(said.Messages, maxListed) {
		out.Messages = append(out.Messages, messageOf(&m))
	}
	asked, err := c.Questions(ctx, string(j.Job.ID))
	if err != nil {
		return out, err
	}
	open := slices.DeleteFunc(asked.Questions, func(q api.Question) bool { return q.State != api.QuestionOpen })
	for _, q := range last(open, maxListed) {
		out.Questions = append(out.Questions, questionOf(&q))
	}
	return out, nil
}

// standing is how the scheduler stands.
type standing struct {
	Version    string       `json:"version"`
	Stopping   bool         `json:"stopping" jsonschema:"it is about to end"`
	Running    int          `json:"running"`
	MaxAtOnce  int          `json:"max_at_once"`
	Queue      api.Census   `json:"queue" jsonschema:"how many jobs are in which state"`
	Workers    []workerLine `json:"workers"`
	Isolations []outOfUse   `json:"isolations" jsonschema:"what is out of use, or paused"`
	Questions  int          `json:"questions" jsonschema:"how many of agents are open; list_questions has them"`
}

// workerLine is a kind of worker that jobs may name.
type workerLine struct {
	Name    job.WorkerKind `json:"name"`
	Model   string         `json:"model,omitempty"`
	Running int            `json:"running"`
	Problem string         `json:"problem,omitempty" jsonschema:"why it cannot be started"`
}

// outOfUse is an isolation.
type outOfUse struct {
	Scope string     `json:"scope"`
	Cause string     `json:"cause"`
	Until *time.Time `json:"until,omitempty" jsonschema:"absent: until somebody lifts it"`
}

func status(ctx context.Context, c *call, _ struct{}) (standing, error) {
	out := standing{Workers: []workerLine{}, Isolations: []outOfUse{}}
	all, err := c.Overview(ctx)
	if err != nil {
		return out, err
	}
	workers, err := c.Workers(ctx)
	if err != nil {
		return out, err
	}
	asked, err := c.OpenQuestions(ctx, "")
	if err != nil {
		return out, err
	}
	out.Version, out.Stopping, out.Running, out.MaxAtOnce, out.Queue, out.Questions = all.Version, all.Stopping, all.Running, all.MaxAtOnce, all.Census, len(asked.Questions)
	for _, w := range workers[:min(len(workers), 100)] {
		out.Workers = append(out.Workers, workerLine{w.Kind, w.Model, w.Running, w.Problem})
	}
	for _, i := range all.Isolations[:min(len(all.Isolations), 50)] {
		o := outOfUse{Scope: i.Scope, Cause: i.Cause}
		if !i.Until.IsZero() {
			o.Until = &i.Until
		}
		out.Isolations = append(out.Isolations, o)
	}
	return out, nil
}
