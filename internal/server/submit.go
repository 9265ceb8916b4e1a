package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
)

// submissions accepts jobs.
type submissions struct {
	entries   entries
	submit    func(context.Context, queue.Batch, []queue.Entry) error
	checked   checker
	parcels   parcels
	readFile  func(context.Context, api.JobFile) (api.Submission, error) // Options.ReadFile
	principal func(context.Context) string                               // Options.Principal
	maxBody   int64
}

func (s submissions) routes(r *router) {
	again := "\nWith an Idempotency-Key the same request may be sent again: the answer is then the jobs of the first request, with status 200 and the header Idempotent-Replayed."
	replayed := map[string]string{replayedHeader: "true: the jobs are those of an earlier request with this key"}
	postReply(r, route{id: "submit-jobs", method: "POST", path: "/v1/jobs", role: submit, tag: "jobs", status: http.StatusCreated, other: http.StatusOK, headers: replayed, body: s.maxBody, maxJobs: s.checked.maxJobs,
		about: "Submit jobs, all or none. The answer is sent when they are durable." + again}, s.jobs)
	postReply(r, route{id: "submit-job-file", method: "POST", path: "/v1/job-files", role: submit, tag: "jobs", status: http.StatusCreated, other: http.StatusOK, headers: replayed, body: s.maxBody,
		about: "Submit a job file, as `scheduler submit` reads it on the scheduler's host." + again}, s.file)
}

type submitHeaders struct {
	Key   string `header:"Idempotency-Key" doc:"1 to 255 printable ASCII characters; the same key of the same sender is the same submission, as long as its jobs are kept"`
	Trace string `header:"traceparent" doc:"W3C trace context; jobs without a trace get its trace id"`
}

const replayedHeader = "Idempotent-Replayed"

func (s submissions) file(ctx context.Context, h *submitHeaders, f *api.JobFile) (out reply[api.Jobs], err error) {
	if s.readFile == nil {
		return out, newProblem("not_available", http.StatusNotFound, "job files cannot be read here: submit their jobs to POST /v1/jobs")
	}
	in, err := s.readFile(ctx, *f)
	switch {
	case err != nil && ctx.Err() != nil:
		return out, err
	case err != nil:
		return out, badField("body.text", "%v", err)
	}
	return s.jobs(ctx, h, &in)
}

// jobs stores jobs and answers when they are durable.
func (s submissions) jobs(ctx context.Context, h *submitHeaders, in *api.Submission) (out reply[api.Jobs], err error) {
	if err := s.checked.check(in); err != nil {
		return out, err
	}
	if err := s.parcels.complete(ctx, in.Jobs); err != nil {
		return out, err
	}
	key, err := s.newKey(ctx, h.Key, in)
	if err != nil {
		return out, err
	}
	if out, found, err := s.replay(ctx, key, in); found || err != nil {
		return out, err
	}
	if trace := traceOf(h.Trace); trace != "" {
		for i := range in.Jobs {
			in.Jobs[i].Trace = cmp.Or(in.Jobs[i].Trace, trace)
		}
	}
	b, entries := scheduler.NewBatch(in.Source, in.Digest, in.Jobs, in.Workflow, time.Now().UTC().Round(0))
	key.name(&b, entries)
	if err := s.submit(ctx, b, entries); err != nil {
		if errors.Is(err, queue.ErrDuplicate) {
			// The same request may have come in at the same time, and been first.
			if out, found, err := s.replay(ctx, key, in); found || err != nil {
				return out, err
			}
		}
		return out, err
	}
	out.body, err = s.entries.batch(ctx, b.ID, len(entries))
	return out, err
}

// traceOf returns the trace id of a traceparent header, 32 hexadecimal digits; ""
// of one that is none, which the standard has passed over
// (https://www.w3.org/TR/trace-context/#traceparent-header).
func traceOf(header string) string {
	parts := strings.Split(header, "-")
	if len(parts) < 4 || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 {
		return ""
	}
	for i, digits := range []int{2, 32, 16, 2} {
		raw, err := hex.DecodeString(parts[i])
		if err != nil || len(parts[i]) != digits || parts[i] != strings.ToLower(parts[i]) {
			return ""
		}
		if i == 1 || i == 2 {
			if zero := strings.Repeat("0", digits); parts[i] == zero || len(raw) == 0 {
				return ""
			}
		}
	}
	return parts[1]
}
