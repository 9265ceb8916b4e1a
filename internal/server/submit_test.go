package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// post sends a submission with headers and returns the answer.
func (d *served) post(path string, body any, header ...string) (resp *http.Response, jobs api.Jobs) {
	d.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := http.NewRequest("POST", "http://scheduler"+path, bytes.NewReader(text))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err = d.http.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		d.t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	json.Unmarshal(answer, &jobs) //nolint:errcheck // a problem has none
	return resp, jobs
}

func submission(names ...job.Name) api.Submission {
	in := api.Submission{Source: "test"}
	for _, name := range names {
		in.Jobs = append(in.Jobs, spec(name))
	}
	return in
}

// TestIdempotentSubmission: the second of two that are the same is answered with
// the first's jobs, whatever trace it came with; another with that key is refused.
func TestIdempotentSubmission(t *testing.T) {
	who := "anna"
	d := open(t, 0, everything(t.TempDir()), func(o *server.Options) { o.Principal = principal(&who) })
	in := submission("c", "b", "a")
	resp, first := d.post("/v1/jobs", in, "Idempotency-Key", "k", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if resp.StatusCode != http.StatusCreated || len(first.Jobs) != 3 || first.Jobs[0].Spec.Name != "c" || resp.Header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("%s %+v", resp.Status, first)
	}
	for i, e := range first.Jobs {
		if e.Spec.Trace != "0af7651916cd43dd8448eb211c80319c" || i > 0 && e.ID <= first.Jobs[i-1].ID || e.ID[14] != '8' {
			t.Errorf("job %d: %+v", i, e)
		}
	}
	resp, again := d.post("/v1/jobs", in, "Idempotency-Key", "k", "traceparent", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Idempotent-Replayed") != "true" || len(again.Jobs) != 3 || again.Jobs[2].ID != first.Jobs[2].ID {
		t.Errorf("again: %s %+v", resp.Status, again)
	}
	other := submission("c", "b", "z")
	for what, in := range map[string]api.Submission{"other jobs": other, "fewer jobs": submission("c"), "more jobs": submission("c", "b", "a", "d"), "another source": {Source: "elsewhere", Jobs: in.Jobs}} {
		resp, _ := d.post("/v1/jobs", in, "Idempotency-Key", "k")
		if p := problemIn(t, resp); p.Status != http.StatusUnprocessableEntity || p.Name() != "idempotency_key_reused" {
			t.Errorf("%s: %+v", what, p)
		}
	}
	for _, bad := range []string{strings.Repeat("k", 256), "a\tb", "é"} {
		resp, _ := d.post("/v1/jobs", in, "Idempotency-Key", bad)
		if p := problemIn(t, resp); p.Status != http.StatusBadRequest || len(p.Errors) != 1 || p.Errors[0].Location != "header.Idempotency-Key" {
			t.Errorf("key %q: %+v", bad, p)
		}
	}
	// The key is anna's; bert's is another, and so is no key.
	who = "bert"
	if resp, jobs := d.post("/v1/jobs", in, "Idempotency-Key", "k"); resp.StatusCode != http.StatusCreated || jobs.Jobs[0].ID == first.Jobs[0].ID {
		t.Errorf("of another: %s %+v", resp.Status, jobs)
	}
	if resp, _ := d.post("/v1/jobs", in); resp.StatusCode != http.StatusCreated {
		t.Errorf("without a key: %s", resp.Status)
	}
	for range 2 {
		if resp, jobs := d.post("/v1/job-files", api.JobFile{Text: "filed"}, "Idempotency-Key", "f"); resp.StatusCode/100 != 2 || jobs.Jobs[0].Spec.Name != "filed" {
			t.Errorf("a file: %s", resp.Status)
		}
	}
	if _, total, err := d.store.List(t.Context(), queue.Filter{}); err != nil || total != 2+3+3+3+1 {
		t.Errorf("%d jobs are stored, %v", total, err)
	}
}

// TestIdempotencyOfMany: of many that come at once, one is stored and all are
// answered alike.
func TestIdempotencyOfMany(t *testing.T) {
	d := open(t, 0)
	keyed := spec("a")
	keyed.Key, keyed.OnDuplicate = "deploy", job.Reject // it would be its own duplicate
	in := api.Submission{Jobs: []job.Spec{keyed, spec("b")}}
	var wg sync.WaitGroup
	answers := make([]api.Jobs, 16)
	for i := range answers {
		wg.Go(func() {
			c := client.New(d.socket)
			defer c.Close()
			var err error
			if answers[i], err = c.Submit(t.Context(), in, client.WithKey("many")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, a := range answers {
		if len(a.Jobs) != 2 || a.Jobs[0].ID != answers[0].Jobs[0].ID || a.Jobs[1].ID != answers[0].Jobs[1].ID {
			t.Errorf("answers %+v and %+v", a, answers[0])
		}
	}
	if _, total, err := d.store.List(t.Context(), queue.Filter{}); err != nil || total != 2+2 {
		t.Errorf("%d jobs are stored, %v", total, err)
	}
}

// TestBadSubmission names everything that is wrong, and where.
func TestBadSubmission(t *testing.T) {
	d := open(t, 0, func(o *server.Options) { o.MaxBody = 4096 })
	in := submission("a", "b c", "d")
	in.Jobs[0].Instructions = ""
	in.Jobs[2].Flow.Node = "a"
	resp, _ := d.post("/v1/jobs", in)
	p := problemIn(t, resp)
	var where []string
	for _, e := range p.Errors {
		where = append(where, e.Location)
	}
	if got := strings.Join(where, " "); p.Status != 400 || got != "body.jobs[0].instructions body.jobs[1].id body.jobs[2].flow" && !strings.Contains(got, "body.jobs[2].flow") {
		t.Errorf("%+v", p)
	}
	needs := submission("a")
	needs.Jobs[0].Flow.Needs = []job.Name{"nobody"}
	resp, _ = d.post("/v1/jobs", needs)
	if p := problemIn(t, resp); p.Status != 400 || !strings.Contains(p.Detail, "nobody") {
		t.Errorf("%+v", p)
	}
	resp, _ = d.post("/v1/jobs", submission("a", "b", "a"))
	if p := problemIn(t, resp); p.Status != 400 || len(p.Errors) != 1 || p.Errors[0].Location != "body.jobs[2].id" || !strings.Contains(p.Detail, "jobs[0] already") {
		t.Errorf("%+v", p)
	}
	large := submission("a")
	large.Jobs[0].Instructions = strings.Repeat("x", 5000)
	resp, _ = d.post("/v1/jobs", large)
	if p := problemIn(t, resp); p.Status != http.StatusRequestEntityTooLarge || p.Name() != "too_large" {
		t.Errorf("%+v", p)
	}
	key := spec("k")
	key.Key, key.OnDuplicate = "k", job.Reject
	d.post("/v1/jobs", api.Submission{Jobs: []job.Spec{key}})
	resp, _ = d.post("/v1/jobs", api.Submission{Jobs: []job.Spec{key}})
	if p := problemIn(t, resp); p.Name() != "duplicate" || strings.Contains(p.Detail, "submit 1 jobs") {
		t.Errorf("%+v", p)
	}
}

// TestTraceparent is read as the standard has it.
func TestTraceparent(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	d := open(t, 0)
	for header, want := range map[string]string{
		"00-" + id + "-" + span + "-01":                      id,
		"cc-" + id + "-" + span + "-01-what-comes-later":     id,
		"00-" + id + "-" + span + "-01-more":                 "",
		"ff-" + id + "-" + span + "-01":                      "",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01": "",
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01":   "",
		"00-" + strings.ToUpper(id) + "-" + span + "-01":     "",
		"00-" + id[:30] + "-" + span + "-01":                 "",
		"00-" + id[:31] + "g-" + span + "-01":                "",
		"nonsense":                                           "",
	} {
		own := spec("own")
		own.Trace = "mine"
		_, jobs := d.post("/v1/jobs", api.Submission{Jobs: []job.Spec{spec("none"), own}}, "traceparent", header)
		// Without one, a job has a trace id of its own.
		if len(jobs.Jobs) != 2 || (jobs.Jobs[0].Spec.Trace == id) != (want == id) || jobs.Jobs[1].Spec.Trace != "mine" {
			t.Errorf("%q: %d jobs", header, len(jobs.Jobs))
		}
	}
}

// TestRetry does again what has ended, and nothing else.
func TestRetry(t *testing.T) {
	d := world(t)
	c := client.New(d.socket)
	defer c.Close()
	letter, err := c.Retry(t.Context(), string(d.ids[0]))
	if err != nil || letter.Job.RequeuedFrom != d.ids[0] || letter.Job.State != job.Queued {
		t.Errorf("a dead letter: %+v, %v", letter, err)
	}
	again, err := c.Retry(t.Context(), string(d.last))
	if err != nil || again.Job.ID == d.last || again.Job.Spec.Name != "done" || again.Job.State != job.Queued || again.Job.Spec.Trigger != job.ByResume {
		t.Errorf("what was done: %+v, %v", again, err)
	}
	if _, err := c.Cancel(t.Context(), string(again.Job.ID)); err != nil {
		t.Fatal(err)
	}
	if third, err := c.Retry(t.Context(), string(again.Job.ID)); err != nil || third.Job.State != job.Queued {
		t.Errorf("what was cancelled: %+v, %v", third, err)
	}
	flow, err := c.Job(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Cancel(t.Context(), string(flow.Job.ID)); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		string(d.ids[0]): "requeued", "again": "only a job that has ended", string(flow.Job.ID): "belongs to a workflow",
	} {
		_, err := c.Retry(t.Context(), ref)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != http.StatusConflict || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
	}
}
