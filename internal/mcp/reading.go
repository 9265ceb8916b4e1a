package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func addReading(s *server, role string) {
	add(s, role, tool{name: "read_output", role: read, about: "Read the log of a job: what its agent said and did. Without `after` it is the end of the log; with `next` of an earlier answer as `after` it goes on from there."}, readOutput)
	add(s, role, tool{name: "job_diff", role: read, about: "Read the patch of a job that has ended: what it changed, new files too. A long one comes in parts: `next` is the offset of the next."}, jobDiff)
}

// output is a part of a log.
type output struct {
	Job     jobLine  `json:"job"`
	FromRun []string `json:"from_run" jsonschema:"a line for each event, at most 32 KiB"`
	Next    int64    `json:"next" jsonschema:"give this as after to go on behind these lines"`
	More    bool     `json:"more" jsonschema:"there are more lines behind these already"`
	Notice  string   `json:"notice"`
}

// Bounds of what is read of a log.
const (
	logPage  = 1000 // events of one request
	logPages = 200  // of one call
)

func readOutput(ctx context.Context, c *call, in struct {
	Job   string `json:"job" jsonschema:"the job's name, id, or a part of that"`
	After int64  `json:"after,omitempty" jsonschema:"next of an earlier answer; absent: the end of the log"`
	Lines int    `json:"lines,omitempty" jsonschema:"how many lines at most, 1 to 500; absent: 100"`
}) (output, error) {
	out := output{FromRun: []string{}, Next: in.After, Notice: notice}
	most := in.Lines
	if most == 0 {
		most = 100
	}
	switch err := needsJob(in.Job); {
	case err != nil:
		return out, err
	case most < 1 || most > 500:
		return out, wrong("lines", "is %d, want 1 to 500", in.Lines)
	case in.After < 0:
		return out, wrong("after", "is %d, want next of an earlier answer", in.After)
	}
	j, err := c.Job(ctx, in.Job)
	if err != nil {
		return out, err
	}
	out.Job = lineOf(&j.Job)
	of := string(j.Job.ID)
	if j.Job.CoalescedWith != "" {
		of = string(j.Job.CoalescedWith) // it had no run of its own
	}
	if in.After > 0 {
		return out, out.goOn(ctx, c.Client, of, most)
	}
	for range logPages {
		page, err := c.Events(ctx, of, out.Next, logPage)
		if err != nil {
			return out, err
		}
		for i := range page.Events {
			out.Next = page.Events[i].Cursor
			out.FromRun = append(out.FromRun, eventLine(&page.Events[i].Event))
		}
		out.FromRun = last(out.FromRun, most)
		if len(page.Events) < logPage {
			out.FromRun = cutLines(out.FromRun, maxOutput)
			return out, nil
		}
	}
	out.More, out.FromRun = true, cutLines(out.FromRun, maxOutput)
	return out, nil
}

// goOn reads what stands behind Next.
func (out *output) goOn(ctx context.Context, c *client.Client, of string, most int) error {
	page, err := c.Events(ctx, of, out.Next, most+1)
	if err != nil {
		return err
	}
	size := 0
	for i := range page.Events {
		text := eventLine(&page.Events[i].Event)
		if size += len(text) + 1; i == most || size > maxOutput {
			out.More = true
			return nil
		}
		out.Next, out.FromRun = page.Events[i].Cursor, append(out.FromRun, text)
	}
	return nil
}

// eventLine returns an event as one line.
func eventLine(e *job.Event) string { return terminal.Clean(terminal.EventLine(e)) }

// diff is a part of a patch.
type diff struct {
	Job     jobLine  `json:"job"`
	Bytes   int64    `json:"bytes" jsonschema:"of the whole patch; 0: the job changed nothing"`
	Offset  int64    `json:"offset" jsonschema:"where this part begins, in bytes"`
	Next    int64    `json:"next,omitempty" jsonschema:"offset of the next part; absent after the last"`
	Before  []string `json:"before,omitempty" jsonschema:"jobs whose patches this one builds on and does not hold; whole: true has them, too"`
	FromRun string   `json:"from_run" jsonschema:"the part, with control characters made visible; scheduler diff has the bytes"`
	Notice  string   `json:"notice"`
}

func jobDiff(ctx context.Context, c *call, in struct {
	Job    string `json:"job" jsonschema:"the job's name, id, or a part of that"`
	Whole  bool   `json:"whole,omitempty" jsonschema:"with the patches of the jobs that it builds on"`
	Offset int64  `json:"offset,omitempty" jsonschema:"where to begin, in bytes: next of the part before"`
}) (diff, error) {
	out := diff{Offset: in.Offset, Notice: notice}
	if err := needsJob(in.Job); err != nil {
		return out, err
	}
	j, err := c.Job(ctx, in.Job)
	if err != nil {
		return out, err
	}
	out.Job = lineOf(&j.Job)
	if !j.Job.State.Terminal() {
		return out, fmt.Errorf("job %s is %s: its patch is there when it has ended, and read_output shows what it does", j.Job.Spec.Name, out.Job.State)
	}
	if r := j.Job.Resolved; r != nil && !in.Whole {
		for _, p := range r.Patches {
			if p.Path != "" {
				out.Before = append(out.Before, string(p.Job))
			}
		}
	}
	if len(j.Attempts) == 0 {
		return out, nil
	}
	of := &j.Attempts[len(j.Attempts)-1]
	patch := patchOf(of.Outcome, in.Whole)
	out.Bytes = patch.Bytes
	switch {
	case patch.Name == "":
		return out, nil
	case in.Offset < 0 || in.Offset > patch.Bytes:
		return out, wrong("offset", "is %d, want 0 to %d, the bytes of the patch", in.Offset, patch.Bytes)
	}
	file, err := c.Artifact(ctx, string(of.Job), of.Number, patch.Name)
	if err != nil {
		return out, err
	}
	defer file.Close()
	if _, err := io.CopyN(io.Discard, file, in.Offset); err != nil {
		return out, fmt.Errorf("read the patch of job %s: %w", j.Job.Spec.Name, err)
	}
	part := make([]byte, maxPatch)
	n, err := io.ReadFull(file, part)
	part = part[:n]
	switch {
	case err == nil: // there may be more
		if end := bytes.LastIndexByte(part, '\n'); end >= 0 && in.Offset+int64(n) < patch.Bytes {
			part = part[:end+1]
		}
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return out, fmt.Errorf("read the patch of job %s: %w", j.Job.Spec.Name, err)
	}
	if next := in.Offset + int64(len(part)); next < patch.Bytes {
		out.Next = next
	}
	out.FromRun = terminal.Visible(string(part), "\n\t")
	return out, nil
}

// patchOf returns the patch that an attempt has left; without a name if there is none.
func patchOf(o *job.Outcome, whole bool) (patch job.Artifact) {
	if o == nil {
		return patch
	}
	if whole {
		patch, _ = o.Artifact(job.ArtifactWhole)
	}
	if patch.Name == "" {
		patch, _ = o.Artifact(job.ArtifactPatch)
	}
	return patch
}
