package audit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// records returns all but the log's own, with their details.
func records(t *testing.T, dir string) (list []api.AuditRecord, details []map[string]any) {
	t.Helper()
	list, _, err := Last(dir, 10_000, func(r *api.AuditRecord) bool { return !strings.HasPrefix(r.Action, "log.") })
	must(t, err)
	for _, r := range list {
		d := map[string]any{}
		if len(r.Detail) > 0 {
			must(t, json.Unmarshal(r.Detail, &d))
		}
		details = append(details, d)
	}
	return list, details
}

type otherKey struct{}

func TestHandler(t *testing.T) {
	dir := t.TempDir()
	var seconds atomic.Int64
	now := func() time.Time { return time.Unix(1_767_000_000+seconds.Load(), 0) }
	l := open(t, dir, Options{Now: now, Redact: redact.New(redact.Value{Name: "K", Text: "swordfish"})})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs/{job}/cancel", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusConflict)
	})
	mux.HandleFunc("POST /v1/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("GET /v1/jobs", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "read")
		w.(http.Flusher).Flush()
	})
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		Name(r.Context(), api.AuditWho{Name: "ann", Role: "operate", Door: "tcp"})
		Routed(mux).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), otherKey{}, 1)))
	})
	var failed error
	h := l.Handler(guarded, func(context.Context) (name, role, door string) { return "nobody", "", "tcp" }, func(err error) { failed = err })
	ask := func(method, path, body string, known bool) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if known {
			r.Header.Set("Authorization", "x")
		}
		w := httptest.NewRecorder()
		func() {
			defer func() { recover() }()
			h.ServeHTTP(w, r)
		}()
		return w
	}
	if w := ask("GET", "/v1/jobs", "", true); w.Code != 200 || w.Body.String() != "read" || !w.Flushed {
		t.Errorf("answer %+v", w)
	}
	ask("POST", "/v1/jobs/a1/cancel?force=true&why=swordfish", `{"reason":"swordfish"}`+strings.Repeat(" long", 2000), true)
	ask("POST", "/v1/panic", "", true)
	for range 30 {
		ask("GET", "/v1/jobs", "", false)
	}
	seconds.Add(1)
	ask("DELETE", "/v1/x?code=secret", "", false)
	l.RecordRefused(Request{Method: "GET", Status: 403, Why: "the role read may not"}, 5)
	must(t, l.Close())
	whole(t, dir)
	list, details := records(t, dir)
	if len(list) != 2+10+2 || failed != nil {
		t.Fatalf("%d records, %v", len(list), failed)
	}
	r, d := list[0], details[0]
	body, _ := d["body"].(string)
	if r.Who != (api.AuditWho{Name: "ann", Role: "operate", Door: "tcp"}) || r.Action != ActionRequest || r.Job != "a1" || r.Target != "/v1/jobs/a1/cancel" ||
		d["route"] != "POST /v1/jobs/{job}/cancel" || d["status"] != 409.0 || !strings.HasPrefix(body, `{"reason":"[redacted:K]"}`) || len(body) > maxBody {
		t.Errorf("record %+v, detail %v", r, d)
	}
	if d["query"] != "force=true&why=[redacted:K]" || details[12]["query"] != nil {
		t.Errorf("parameters %v, of one that was refused %v", d["query"], details[12]["query"])
	}
	if details[1]["status"] != 0.0 || list[1].Who.Name != "ann" {
		t.Errorf("of a panic: %+v %v", list[1], details[1])
	}
	if list[2].Action != ActionRefused || list[2].Who.Name != "nobody" || details[2]["left_out"] != nil || details[12]["left_out"] != 20.0 || details[12]["method"] != "DELETE" {
		t.Errorf("refused: %+v, %v, %v", list[2], details[2], details[12])
	}
	if details[13]["left_out"] != 5.0 || details[13]["why"] != "the role read may not" {
		t.Errorf("told by the guard: %v", details[13])
	}
	ask("PUT", "/", "", true)
	if !errors.Is(failed, ErrClosed) {
		t.Errorf("nobody was told: %v", failed)
	}
}

func TestObserver(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{Redact: redact.New(redact.Value{Name: "K", Text: "swordfish"})})
	o := NewObserver(l)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	zero, one := 0, 1
	entry := &queue.Entry{ID: "j1", Spec: job.Spec{Name: "fix", Tenant: "web", Worker: "codex", Trigger: "nightly"}, State: job.Completed, ExitKind: "success"}
	event := func(seq int64, e job.Event) job.Event {
		e.Job, e.Attempt, e.Seq, e.Time = "j1", 2, seq, at
		return e
	}
	events := scheduler.Moment{Kind: scheduler.MomentEvents, At: at, Entry: entry, Attempt: 2, Choice: job.Choice{Worker: "claude"}, Events: []job.Event{
		event(1, job.Event{Kind: job.EventCommand, Command: "begins"}),
		event(2, job.Event{Kind: job.EventCommand, Command: "curl swordfish " + strings.Repeat("x", 10_000), ExitCode: &one, Millis: 12}),
		event(3, job.Event{Kind: job.EventText, Text: "words"}),
		event(4, job.Event{Kind: job.EventFile, Path: "a.go", Change: "added"}),
		event(5, job.Event{Kind: job.EventCommand, Command: "go test", ExitCode: &zero, Step: "verify"}),
	}}
	for _, m := range []scheduler.Moment{
		{Kind: scheduler.MomentCoreUp, At: at, Core: 1},
		{Kind: scheduler.MomentSubmitted, At: at, Entry: entry},
		{Kind: scheduler.MomentPermit, At: at, Entry: entry},
		{Kind: scheduler.MomentBegun, At: at, Entry: entry, Attempt: 2},
		events, events,
		{Kind: scheduler.MomentAttemptEnded, At: at, Entry: entry, Attempt: 2, Choice: job.Choice{Worker: "claude", Model: "m"}, Outcome: &job.Outcome{
			State: job.RunCompleted, Files: []job.FileChange{{Path: "a.go", Change: "added"}}, DiffStat: "1 file changed", Usage: job.Usage{CostUSD: 0.5, CostKnown: true},
		}},
		{Kind: scheduler.MomentEnded, At: at, Entry: entry},
		{Kind: scheduler.MomentCoreDown, At: at, Core: 1, Text: "killed"},
	} {
		o.Observe(m)
	}
	must(t, l.Close())
	whole(t, dir)
	list, details := records(t, dir)
	var got []string
	for _, r := range list {
		got = append(got, r.Action)
	}
	want := "core.up job.submitted agent.command agent.file agent.command agent.command agent.file agent.command attempt.ended job.ended core.down"
	if strings.Join(got, " ") != want {
		t.Fatalf("actions %v", got)
	}
	r, d := list[2], details[2]
	if command, _ := d["command"].(string); r.Who != (api.AuditWho{Name: "claude", Role: RoleAgent, Door: "core"}) || r.Job != "j1" || r.Attempt != 2 || r.Event != 2 || !r.Time.Equal(at) ||
		d["exit_code"] != 1.0 || d["ms"] != 12.0 || !strings.HasPrefix(command, "curl [redacted:K]") || len(command) > maxText+10 {
		t.Errorf("command %+v %v", r, d)
	}
	if list[5].Job != r.Job || list[5].Attempt != r.Attempt || list[5].Event != r.Event {
		t.Errorf("an event that came twice: %+v and %+v", r, list[5])
	}
	if list[3].Target != "a.go" || details[3]["change"] != "added" || details[4]["step"] != "verify" {
		t.Errorf("file %+v %v, check %v", list[3], details[3], details[4])
	}
	if d := details[8]; d["state"] != string(job.RunCompleted) || d["diff_stat"] != "1 file changed" || d["model"] != "m" || d["usage"] == nil || d["files"] == nil {
		t.Errorf("attempt %v", d)
	}
	if d := details[1]; d["tenant"] != "web" || d["trigger"] != "nightly" || d["name"] != "fix" || list[1].Who.Role != RoleSystem {
		t.Errorf("submitted %+v %v", list[1], d)
	}
}

func BenchmarkNote(b *testing.B) {
	l, err := Open(b.TempDir(), Options{Redact: redact.New()})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	e := Entry{Who: api.AuditWho{Name: "codex", Role: RoleAgent, Door: "core"}, Action: ActionCommand, Job: "j", Attempt: 1, Detail: api.AuditCommand{Command: "go test ./...", Millis: 12}}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.enqueue(context.Background(), pending{entry: l.stamped(e)}); err != nil { // waits for room: what a record costs
			b.Fatal(err)
		}
	}
}
