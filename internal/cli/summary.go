package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// progressJobs is what a view knows of the jobs beforehand.
func progressJobs(entries []api.Job) []terminal.Job {
	jobs := make([]terminal.Job, len(entries))
	for i := range entries {
		e := &entries[i]
		jobs[i] = terminal.Job{ID: e.ID, Name: e.Spec.Name, Worker: workerOf(e)}
	}
	return jobs
}

// attempts is where a summary finds what was tried for a job.
type attempts interface {
	Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error)
	// Folder returns where an attempt has left its files, or "".
	Folder(a *job.Attempt) string
	// Long returns the whole of an answer that is too long for its outcome.
	Long(ctx context.Context, a *job.Attempt, art job.Artifact) (string, error)
}

// answerOf returns the worker's final message in a job's last attempt, or what the
// job was concluded with; "" if there is none.
func answerOf(ctx context.Context, of attempts, e *api.Job, list []job.Attempt) (string, error) {
	if len(list) == 0 {
		var text string
		if json.Unmarshal(e.Result, &text) == nil {
			return text, nil
		}
		return string(e.Result), nil
	}
	last := &list[len(list)-1]
	if last.Outcome == nil {
		return "", nil
	}
	if art, long := last.Outcome.Artifact(job.ArtifactAnswer); long {
		return of.Long(ctx, last, art)
	}
	return last.Outcome.Answer, nil
}

// readAnswer reads a long answer on the host on which it was given.
func readAnswer(art job.Artifact) (string, error) {
	file, err := statedir.OpenArtifact(art)
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	return string(text), nil
}

// Attempts returns the attempts of a job.
func (o *owned) Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error) {
	return o.store.Attempts(ctx, id)
}

// Folder returns where an attempt has left its files, or "".
func (o *owned) Folder(a *job.Attempt) string { return attemptFolder(o.dir, a) }

// Long returns the whole of an answer that is too long for its outcome.
func (o *owned) Long(_ context.Context, _ *job.Attempt, art job.Artifact) (string, error) {
	return readAnswer(art)
}

// printSummary prints how every job stands and what it answered, and with paths where
// patches and logs lie. With --json, it is one line more of the stream.
func (con *console) printSummary(ctx context.Context, of attempts, entries []api.Job, paths bool) error {
	rows := make([]terminal.Row, len(entries))
	type member struct {
		batch job.BatchID
		name  job.Name
	}
	needed := map[member]bool{}
	for i := range entries {
		for _, name := range entries[i].Spec.Flow.Needs {
			needed[member{entries[i].Batch, name}] = true
		}
	}
	for i := range entries {
		e := &entries[i]
		row, err := summaryRow(ctx, of, e)
		if err != nil {
			return err
		}
		row.Final = e.Spec.Flow.Node == "" && !needed[member{e.Batch, e.Spec.Name}]
		rows[i] = row
	}
	if con.json {
		return summaryJSON(con.stdout, rows)
	}
	opts := terminal.SummaryOptions{Elapsed: time.Since(con.started), Paths: paths}
	if out := con.stdoutFile(); out != nil {
		opts.Colour = con.colour(out)
		if w, _, err := term.GetSize(int(out.Fd())); err == nil {
			opts.Width = w
		}
	}
	return terminal.Summary(con.stdout, rows, opts)
}

func summaryRow(ctx context.Context, of attempts, e *api.Job) (terminal.Row, error) {
	list, err := of.Attempts(ctx, e.ID)
	if err != nil {
		return terminal.Row{}, err
	}
	st := statusOf(e)
	row := terminal.Row{
		Name: e.Spec.Name, Worker: workerOf(e), State: st.State, Attempts: e.Attempts, Time: e.SpentTime.Std(), Usage: e.Spent,
		Message: st.Line(), Skipped: e.Skipped != "", // unless an attempt says more, below
	}
	if e.State == job.Dispatched {
		// Nothing runs any more when this is printed.
		row.State, row.Message = job.Pending, "its end was not recorded; the next run takes it up again"
	}
	if e.State.Terminal() && e.Skipped == "" {
		if row.Answer, err = answerOf(ctx, of, e, list); err != nil {
			return row, err
		}
	}
	if len(list) == 0 {
		return row, nil
	}
	last := &list[len(list)-1]
	row.Worker, row.Logs = last.Choice.Worker, of.Folder(last)
	if o := last.Outcome; o != nil {
		row.Files = len(o.Files)
		if e.State.Terminal() {
			row.Class, row.Hint = o.Class, o.Hint
			row.Message = o.Message
			if why, ok := strings.CutPrefix(e.DeadLetter, fmt.Sprintf("%s: %s; ", o.Class, firstLine(o.Message))); ok {
				row.Message += " (" + why + ")"
			}
		}
		patch, _ := o.Artifact(job.ArtifactPatch)
		row.Patch = patch.Path
	}
	return row, nil
}

// summaryJSON writes the summary as the last line of a stream of updates.
func summaryJSON(out io.Writer, rows []terminal.Row) error {
	type line struct {
		Name     job.Name       `json:"name"`
		Worker   job.WorkerKind `json:"worker"`
		State    job.RunState   `json:"state"`
		Skipped  bool           `json:"skipped,omitempty"`
		Attempts int            `json:"attempts"`
		TimeMS   int64          `json:"time_ms"`
		Usage    job.Usage      `json:"usage"`
		Files    int            `json:"files"`
		Class    job.ErrorClass `json:"class,omitempty"`
		Message  string         `json:"message,omitempty"`
		Answer   string         `json:"answer,omitempty"`
		Hint     string         `json:"hint,omitempty"`
		Patch    string         `json:"patch,omitempty"`
		Logs     string         `json:"logs,omitempty"`
	}
	lines := make([]line, len(rows))
	for i, r := range rows {
		lines[i] = line{r.Name, r.Worker, r.State, r.Skipped, r.Attempts, r.Time.Milliseconds(), r.Usage, r.Files, r.Class, r.Message, r.Answer, r.Hint, r.Patch, r.Logs}
	}
	return terminal.NewEncoder(out).Encode(map[string]any{"kind": "summary", "time": utcNow(), "jobs": lines})
}
