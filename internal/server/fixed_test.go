package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
	"github.com/agentsched/agentsched/workflow/durable"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// fixed is a server whose store holds the same in every run: fixed ids, and the
// times of a synctest bubble.
type fixed struct {
	*testing.T
	dir    string
	store  *sqlite.Store
	sched  *scheduler.Scheduler
	server *server.Server
	cores  *fixedCores
}

// fixedCores are cores that stand still.
type fixedCores struct{ supervisor.Handler }

func (*fixedCores) Run(context.Context) error                { return nil }
func (*fixedCores) Hurry()                                   {}
func (*fixedCores) Reconfigure(context.Context) error        { return nil }
func (*fixedCores) Restart(context.Context, int, bool) error { return nil }
func (*fixedCores) Resume(int) bool                          { return false }
func (*fixedCores) Cores() []supervisor.Status {
	return []supervisor.Status{
		{Index: 1, PID: 7, State: "up", Version: "test", Protocol: 1, Since: began, Restarts: 2, RSSBytes: 1 << 20, CPURatio: 0.25, Heartbeat: time.Millisecond},
		{Index: 65, Node: "a", Place: 1, PID: 8, State: "up", Version: "test", Protocol: 1, Since: began, RSSBytes: -1, Heartbeat: time.Millisecond},
	}
}

// fixedNodes are nodes of which one stands still.
type fixedNodes struct{ *node.Nodes }

func (n fixedNodes) Status() []node.Status {
	a := node.Status{
		Name: "a", Version: "test", Came: true, Connected: true, Heard: began, Since: began, RoundTrip: time.Millisecond,
		Inventory: node.Inventory{
			Host: "a.example.com", OS: "linux", Arch: "amd64", CPUs: 8, Memory: 1 << 30, Slots: 4, Labels: map[string]string{"gpu": "no"}, Sandbox: "enforce",
			Workers: []node.Worker{{Kind: "claude", Why: "not logged in"}, {Kind: "shell", Version: "1", Ready: true}},
		},
	}
	return append([]node.Status{a}, n.Nodes.Status()...)
}

// newFixedNodes returns nodes whose cordons are kept in dir.
func newFixedNodes(t testing.TB, dir string, h supervisor.Handler) server.Nodes {
	t.Helper()
	cordons, err := node.LoadCordons(t.Context(), statedir.Files(dir, statedir.NodesFile))
	if err != nil {
		t.Fatal(err)
	}
	all, err := node.NewNodes(node.NodesConfig{Handler: h.(supervisor.AwayHandler), Log: zerolog.Nop(), Lease: time.Second, Cordons: cordons, First: 64})
	if err != nil {
		t.Fatal(err)
	}
	return fixedNodes{all}
}

// began is when a synctest bubble begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// fixedID returns the id of thing n of the fixed world.
func fixedID(n int) job.ID { return job.ID(fmt.Sprintf("00000000-0000-7000-8000-%012d", n)) }

func newFixed(t *testing.T) *fixed {
	t.Helper()
	w := &fixed{T: t, dir: t.TempDir(), cores: &fixedCores{}}
	var err error
	if w.store, err = sqlite.Open(t.Context(), filepath.Join(w.dir, "queue.db"), sqlite.Options{Log: zerolog.Nop()}); err != nil {
		t.Fatal(err)
	}
	w.sched = scheduler.New(scheduler.Config{Store: w.store, Log: zerolog.Nop(), Isolations: &isolation.Book{}, Traits: kinds, Supervise: func(h supervisor.Handler) scheduler.Cores {
		w.cores.Handler = h
		return w.cores
	}})
	opt := server.Options{Store: w.store, Sched: w.sched, Log: zerolog.Nop(), Version: "test", Self: api.FleetMember{Instance: "i", Host: "h", Version: "test", Config: "c"}}
	everything(w.dir)(&opt)
	opt.Nodes = newFixedNodes(t, w.dir, w.cores.Handler)
	w.server = server.New(opt)
	w.fill()
	return w
}

func (w *fixed) close() {
	if err := w.store.Close(); err != nil {
		w.Error(err)
	}
}

func (w *fixed) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// enqueue stores jobs as a batch of a fixed id.
func (w *fixed) enqueue(batch int, common job.Workflow, first int, specs ...job.Spec) {
	w.Helper()
	id := job.BatchID(fixedID(batch))
	var entries []queue.Entry
	for i := range specs {
		entries = append(entries, queue.Entry{ID: fixedID(first + i), Batch: id, State: job.Queued, CreatedAt: began, RunnableAt: began, Spec: specs[i]})
		if !specs[i].Flow.Alone() && len(specs[i].Flow.Needs) > 0 {
			entries[i].Held = job.HeldForNeeds
		}
	}
	w.must(w.store.Enqueue(w.Context(), queue.Batch{ID: id, Source: fmt.Sprintf("jobs-%d.yaml", batch), Digest: "d", Workflow: common, CreatedAt: began}, entries))
}

// claim has the job that is next begin its next attempt.
func (w *fixed) claim(id job.ID) (fence job.Fence, number int) {
	w.Helper()
	claims, err := w.store.Claim(w.Context(), queue.ClaimSpec{Holder: "test", Max: 1, Now: began, Lease: time.Hour, Admit: func(e *queue.Entry) bool { return e.ID == id }})
	if err != nil || len(claims.Entries) != 1 {
		w.Fatalf("claim %s: %+v, %v", id, claims, err)
	}
	e := &claims.Entries[0]
	number = e.Attempts + 1
	w.must(w.store.Apply(w.Context(),
		queue.Begin{ID: id, Fence: e.Fence, Attempt: job.Attempt{Job: id, Number: number, Fence: e.Fence, Choice: e.Spec.Choices()[0], State: job.Pending, Started: began}},
		queue.Move{ID: id, Fence: e.Fence, Attempt: number, To: job.Running}))
	return e.Fence, number
}

// fill stores something of everything.
func (w *fixed) fill() {
	w.Helper()
	ctx := w.Context()
	done, dead, review, runs, later, keyed, second := spec("docs"), spec("fix"), spec("review"), spec("deploy"), spec("later"), spec("keyed"), spec("keyed-too")
	done.Agent, done.Class, done.Priority, done.Model, done.Trace = "reviewer", job.Batch, 3, "small", "t1"
	done.Limits = job.Limits{MaxAttempts: 3}
	done.Context = job.Context{CorrelationID: "c", UserID: "u", SessionID: "s"}
	tomorrow := began.Add(24 * time.Hour)
	later.RunnableAt, later.Deadline = &tomorrow, &tomorrow
	keyed.Key, second.Key, second.OnDuplicate = "k", "k", job.Serialize
	w.enqueue(100, job.Workflow{}, 1, done, dead, review, runs, later, keyed, second, spec("drop"))

	fence, number := w.claim(fixedID(1))
	folder := filepath.Join(w.dir, string(fixedID(1)), "1")
	w.must(os.MkdirAll(folder, 0o700))
	patch := filepath.Join(folder, "patch.diff")
	w.must(os.WriteFile(patch, []byte("+<b>\n"), 0o600))
	w.must(os.Chtimes(patch, began, began))
	_, _, err := durable.Keep(ctx, w.store, durable.Space(fixedID(1)), durable.Stored{ID: "plan", Inputs: "x", Result: []byte(`1`), Attempt: 1, At: began})
	w.must(err)
	exit := 0
	usage := job.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: 0.5, CostKnown: true}
	var events []job.Event
	for i, e := range []job.Event{
		{Kind: job.EventText, Text: "hello"}, {Kind: job.EventCommand, Command: "make", CallID: "1", ExitCode: &exit, Millis: 3},
		{Kind: job.EventFile, Path: "a.go", Change: "modified"}, {Kind: job.EventUsage, Usage: &usage}, {Kind: job.EventStep, Step: "plan", Kept: job.KeptFresh},
	} {
		e.Job, e.Attempt, e.Seq, e.Time = fixedID(1), number, int64(i+1), began
		events = append(events, e)
	}
	w.must(w.store.Apply(ctx, queue.Append{Events: events}, queue.Finish{ID: fixedID(1), Fence: fence, Attempt: number, Now: began.Add(time.Minute), Exit: job.ExitSucceeded, Outcome: job.Outcome{
		State: job.RunCompleted, Answer: "done", Session: "s1", Usage: usage, StartedAt: began, EndedAt: began.Add(time.Minute), Commands: []job.CommandRun{{Command: "make"}},
		Files: []job.FileChange{{Path: "a.go"}}, Artifacts: []job.Artifact{{Name: job.ArtifactPatch, Path: patch, Bytes: 5, SHA256: "da5c0b6eeff6698733559400a423ff9fe4aed59e196040448fd9ddcd1016328c"}},
	}}))

	for _, id := range []job.ID{fixedID(2), fixedID(8)} {
		fence, number = w.claim(id)
		w.must(w.store.Apply(ctx, queue.Finish{ID: id, Fence: fence, Attempt: number, Now: began, Exit: job.ExitFailed, DeadLetter: "3 attempts were made",
			Outcome: job.Outcome{State: job.RunFailed, Class: job.Crash, Message: "it died", Hint: "look at it", ExitCode: 3, StartedAt: began, EndedAt: began}}))
	}
	fence, number = w.claim(fixedID(3))
	until := began.Add(time.Hour)
	w.must(w.store.Apply(ctx, queue.Await{ID: fixedID(3), Fence: fence, Attempt: number, Now: began, Waiting: "waits for approval",
		Approval: queue.Approval{Attempt: number, Why: "it asks", AskedAt: began, Until: &until, Default: "reject"},
		Outcome:  job.Outcome{State: job.RunCompleted, Answer: "done", StartedAt: began, EndedAt: began}}))
	w.claim(fixedID(4))
	w.must(w.store.Apply(ctx, queue.Write{Record: queue.Record{Space: queue.JobSpace(fixedID(4), "questions"), Key: "000001", At: began, Value: json.RawMessage(
		`{"number":1,"job":"` + string(fixedID(4)) + `","name":"deploy","tenant":"t","attempt":1,"kind":"command","text":"run make?","tool":"Bash","command":"make","decisions":["allow","deny"],` +
			`"state":"open","asked_at":"2000-01-01T00:00:00Z","id":"q","key":"k"}`)}},
		queue.Write{Record: queue.Record{Space: "questions/" + string(fixedID(4)) + "/000001", Key: "open", At: began, Value: json.RawMessage(`true`)}}))

	first, items, loop, merge, handle := spec("first"), spec("items"), spec("again"), spec("merge"), spec("handle")
	first.Agent, first.Flow.Joined = "reviewer", true
	items.Flow = job.Flow{Joined: true, Needs: []job.Name{"first"}, ForEach: &job.ForEach{Items: []byte(`["a","b"]`), Max: 5}}
	loop.Flow = job.Flow{Joined: true, Needs: []job.Name{"first"}, Loop: &job.Loop{Command: "true", MaxIterations: 3}}
	merge.Flow = job.Flow{Joined: true, Needs: []job.Name{"items", "again"}, If: "true"}
	handle.Flow = job.Flow{Joined: true}
	common := job.Workflow{
		Agents:    []job.Profile{{Name: "reviewer", Domains: []string{"legal"}}},
		Pipelines: []job.Pipeline{{ID: "line", Stages: []job.Stage{{ID: "in", Job: "handle", Publishes: []job.EventType{"made"}}}}},
	}
	w.enqueue(101, common, 11, first, items, loop, merge, handle)
	_, err = scheduler.Agents(ctx, w.store)
	w.must(err)
	log, err := pipeline.Open(ctx, w.store, job.BatchID(fixedID(101)), &common.Pipelines[0])
	w.must(err)
	w.must(log.Seed(ctx, json.RawMessage(`[{"n":1},{"n":2}]`), began))
}

// exchanges are what the golden answers ask for, in this order: what is read comes
// before what changes it. RUN is the batch of the run that was opened last.
func (w *fixed) exchanges() []exchange {
	one, batch := "/v1/jobs/"+string(fixedID(1)), string(fixedID(101))
	get := func(path string) exchange { return exchange{request: "GET " + path} }
	post := func(path, body string) exchange { return exchange{request: "POST " + path, body: body} }
	command := `{"id":"NAME","tenant":"t","type":"TOOL","worker":"shell","instructions":"true","workspace":{"isolation":"none"}}`
	jobs := `{"source":"s","jobs":[` + command + `]}`
	keyed := exchange{request: "POST /v1/jobs", header: []string{"Idempotency-Key", "k1"}, body: jobs}
	run := `{"source":"run.yaml","digest":"d","jobs":[` + command + `]}`
	return append(parcelExchanges(), []exchange{
		get("/healthz"), get("/readyz"), get("/openapi.json"), get("/"), get("/assets/app.js"), get("/login"), get("/answer?code=none"), post("/answer", `{"code":"none"}`), get("/metrics"), get("/v1/me"),
		get("/mcp"), post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), {request: "DELETE /mcp"},
		get("/v1/jobs"), get("/v1/jobs?limit=2&newest=true&status=pending"), get("/v1/jobs?state=none&q="),
		get(one), get("/v1/jobs/review"), get("/v1/jobs/deploy"), get("/v1/jobs/none"),
		get(one + "/events"), get(one + "/events?after=2&limit=1"), get(one + "/events?last=1"), get(one + "/steps"), get(one + "/attempts/1/artifacts/patch"), get(one + "/attempts/1/artifacts/stdout"),
		get("/v1/overview"), get("/v1/status"), get("/v1/tenants"), get("/v1/workers"), get("/v1/triggers"),
		get("/v1/timeline?since=1999-12-31T23:00:00Z&until=2000-01-01T01:00:00Z"), get("/v1/timeline?since=2001-01-01T00:00:00Z&until=2000-01-01T00:00:00Z"),
		get("/v1/workflows"), get("/v1/workflows/" + batch), get("/v1/pipelines"), get("/v1/pipelines/line/events"), get("/v1/approvals"), get("/v1/dead-letters"), get("/v1/dead-letters?class=NONE"), get("/v1/dead-letters/" + string(fixedID(2))), get("/v1/dead-letters/nobody"), get("/v1/dead-letters/" + string(fixedID(1))), get("/v1/replays/" + string(fixedID(1))), get("/v1/replays/" + batch), get("/v1/replays/nobody"),
		get("/v1/agents"), get("/v1/usage?by=tenant&by=model&by=day"), get("/v1/grants"),
		post(one+"/evaluations", `{"by":"anna","quality":0.5,"comment":"good"}`), post(one+"/evaluations", `{"by":"anna","quality":2}`), get(one + "/evaluations"), get("/v1/jobs/deploy/evaluations"),
		get("/v1/reputations"), get("/v1/reputations/history?subject=t&kind=tenant"), get("/v1/reputations/similar?subject=t&kind=tenant"), get("/v1/reputations/similar"),

		{request: "GET /v1/stream?kinds=job,core,circuit,escalation,event", during: func() {
			w.sched.Feed.Tell("a new program takes over")
			w.notify(ipc.NotifyCircuits, ipc.Circuits{Changed: ipc.Circuit{Worker: "codex", Model: "m", State: "open", OpenUntil: began.Add(time.Minute), Requests: 3, Failures: 2, Cause: "SERVER"}})
			w.notify(ipc.NotifyEscalation, ipc.Escalation{Escalation: isolation.Escalation{Scope: "worker:codex", Cause: isolation.CauseWorkerCrashes, Message: "5 crashes", Action: isolation.IsolateKind, Time: began, Until: began.Add(time.Hour)}})
			w.must(w.sched.Cancel(w.Context(), fixedID(5)))
		}},
		{request: "GET /v1/stream", header: []string{"Last-Event-ID", "other-1"}, during: func() {}},
		get("/v1/stream?kinds=none"),
		get(one + "/stream"),
		{request: "GET " + one + "/stream", header: []string{"Last-Event-ID", "4"}},
		{request: "GET /v1/jobs/keyed/stream", during: func() {}},
		get("/v1/status"), get("/v1/overview"), get("/v1/fleet"),

		{request: "PUT /v1/grants", body: `{"tenant":"t","agent":"reviewer","tokens":500000,"cost_usd":2.5,"wall":"1h","window":"24h"}`},
		{request: "PUT /v1/grants", body: `{"tenant":"t","tokens":-1}`}, get("/v1/grants"),
		get("/v1/credits"), get("/v1/credits/history?tenant=t"), post("/v1/credits", `{"tenant":"t","credits":0}`), post("/v1/credits", `{"tenant":"t","credits":-1}`),
		post("/v1/jobs/"+string(fixedID(4))+"/grants", `{"entry":"Registry.example.com:8443","by":"anna"}`), post("/v1/jobs/"+string(fixedID(4))+"/grants", `{"entry":"none","scope":"all"}`),
		post("/v1/jobs/"+string(fixedID(4))+"/grants", `{"entry":"npm","scope":"tenant","by":"anna"}`), post("/v1/jobs/"+string(fixedID(1))+"/grants", `{"entry":"npm","scope":"once"}`),
		get("/v1/jobs/" + string(fixedID(4)) + "/grants"), get("/v1/run-grants?tenant=t"),
		post("/v1/run-grants/revoke", `{"entry":"npm","tenant":"t"}`), post("/v1/run-grants/revoke", `{"entry":"npm"}`), post("/v1/run-grants/revoke", `{"entry":"npm","tenant":"t"}`),
		get("/v1/inbox"), get("/v1/inbox?tenant=other"), get("/v1/questions"), get("/v1/questions?tenant=other"), get("/v1/jobs/deploy/questions"), post("/v1/jobs/deploy/questions/1/answer", `{"decision":"maybe","scope":"all"}`),
		post("/v1/jobs/deploy/questions/1/answer", `{"decision":"allow","scope":"tenant","by":"anna"}`), post("/v1/jobs/deploy/questions/1/answer", `{"decision":"deny"}`), post("/v1/jobs/deploy/questions/2/answer", `{"decision":"deny"}`),
		post("/v1/jobs/deploy/messages", `{"text":"no docs","id":"m","by":"anna"}`), post("/v1/jobs/deploy/messages", `{"text":"no docs","id":"m","by":"anna"}`), post("/v1/jobs/deploy/messages", `{"text":" ","id":"a b"}`),
		post(one+"/messages", `{"text":"go on"}`), get("/v1/jobs/deploy/messages"), post("/v1/jobs/deploy/fork", `{"text":"again","by":"anna"}`), post(one+"/fork", `{"text":" ","name":"a b"}`), post("/v1/jobs/deploy/interrupt", `{"by":"anna"}`),
		post("/v1/jobs/deploy/takeover", `{"by":"anna"}`), post("/v1/jobs/deploy/handback", `{"by":"anna"}`), post("/v1/jobs/deploy/handback", `{"id":"a b"}`),
		post("/v1/credits", `{"tenant":"t","credits":10,"by":"anna"}`), post("/v1/credits", `{"tenant":"t","credits":-11}`), get("/v1/credits"), get("/v1/grants"),
		get("/v1/credits/history?tenant=t&limit=1"), get("/v1/credits/history"), post("/v1/credits/drop", `{"tenant":"t"}`), post("/v1/credits/drop", `{"tenant":"t"}`),
		post("/v1/jobs", jobs), keyed, keyed, post("/v1/jobs", `{"jobs":[{"id":"a b","type":"TOOL"}],"more":1}`), post("/v1/jobs", `{"jobs":[{"id":"a b","type":"TOOL"}]}`),
		post("/v1/job-files", `{"text":"name"}`), post("/v1/job-files", `{"text":""}`),
		post("/v1/runs", run), post("/v1/runs", run), get("/v1/runs"), post("/v1/runs/RUN/continue", `{"env":{"A":"b"}}`), post("/v1/runs/RUN/stop", ``), post("/v1/runs/RUN/close", ``), post("/v1/runs/"+batch+"/close", ``),
		post("/v1/jobs/review/answer", `{"approved":false}`), post("/v1/jobs/review/answer", `{"approved":true,"by":"anna","comment":"fine"}`),
		post("/v1/jobs/deploy/checkpoint", `{"reason":"lunch"}`), post("/v1/jobs/deploy/cancel", ``), post(one+"/cancel", ``), post(one+"/retry", ``),
		post("/v1/jobs/cancel", `{"key":"k","tenant":"t"}`), post("/v1/jobs/cancel", `{"key":"k","tenant":"t"}`),
		post("/v1/dead-letters/requeue", `{"letters":[{"id":"`+string(fixedID(2))+`"}],"reset_session":true}`),
		post("/v1/dead-letters/drop", `{"ids":["`+string(fixedID(8))+`"]}`), post("/v1/dead-letters/drop", `{"ids":["`+string(fixedID(2))+`"]}`), get("/v1/jobs/" + string(fixedID(2))),
		post("/v1/pipelines/line/replay", `{"stage":"in","from":1}`), post("/v1/pipelines/none/replay", `{"stage":"in","from":1}`),
		post("/v1/pause", `{"scope":"worker:claude","reason":"the bill","for":"1h"}`), post("/v1/pause", `{"scope":"all"}`), post("/v1/resume", `{"scope":"worker:claude"}`), post("/v1/resume", `{"scope":"worker:claude"}`),
		post("/v1/cores/restart", `{"core":1,"drain":true}`), post("/v1/cores/restart", `{"core":9}`), post("/v1/cores/restart", `{"core":2,"node":"a"}`), post("/v1/reload", ``),
		get("/v1/node"), get("/v1/nodes"), get("/v1/nodes/a"), get("/v1/nodes/b"),
		post("/v1/nodes/b/cordon", `{"why":"a new kernel","by":"anna"}`), post("/v1/nodes/b/cordon", `{"why":1}`), post("/v1/nodes/.b/cordon", ``), get("/v1/nodes"),
		post("/v1/nodes/c/drain", ``), post("/v1/nodes/c/drain", `{"mode":"now"}`), post("/v1/nodes/b/uncordon", ``), post("/v1/nodes/b/uncordon", ``),
		{request: "DELETE /v1/nodes/a"}, {request: "DELETE /v1/nodes/c?force=maybe"}, {request: "DELETE /v1/nodes/c"}, {request: "DELETE /v1/nodes/c"},
		post("/v1/upgrade", `{"mode":"drain"}`), post("/v1/upgrade", `{"mode":"now"}`), post("/v1/ui-links", `{"role":"read"}`), post("/v1/ui-links", ``),
		post("/v1/rpc", `{"jsonrpc":"2.0","id":1,"method":"kernel.sched.enqueue","params":{"tenant":"t","agent":"a","payload":{"n":1}}}`),
		post("/v1/rpc?spelling=rfc", `[{"jsonrpc":"2.0","id":"a","method":"kernel.sched.list","params":{}},{"jsonrpc":"2.0","method":"kernel.sched.list"},{"jsonrpc":"2.0","id":2,"method":"none"}]`),
		post("/v1/rpc", `{`),
		post("/v1/pipelines/line/runs", `{"types":["sead"]}`), post("/v1/pipelines/none/runs", `{}`), post("/v1/pipelines/line/runs", `{"stage":"in","to":1}`),
	}...)
}

// notify has a core tell the scheduler something.
func (w *fixed) notify(method string, params any) {
	text, err := json.Marshal(params)
	w.must(err)
	w.cores.CoreNotify(nil, method, text)
}
