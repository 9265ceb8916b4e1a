package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/job"
)

// records returns the whole audit log as `scheduler audit tail` tells it.
func (b *bench) records() (list []api.AuditRecord) {
	b.t.Helper()
	out, errs, code := b.command("audit", "tail", "-n", "100000", "--json")
	if code != 0 {
		b.fatalf("audit tail: exit code %d\n%s", code, errs)
	}
	for line := range strings.Lines(out) {
		var r api.AuditRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			b.fatalf("audit tail: %v\n%s", err, line)
		}
		list = append(list, r)
	}
	return list
}

// verify wants `scheduler audit verify` to end so, and returns what it has found.
func (b *bench) verify(code int) audit.Report {
	b.t.Helper()
	out, errs, got := b.command("audit", "verify", "--json")
	var report audit.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || got != code {
		b.fatalf("audit verify: exit code %d, want %d, %v\n%s%s", got, code, err, out, errs)
	}
	return report
}

// TestDoorAudit: what people did through which door, what agents ran and what they
// changed stands in the audit log, and an edit of it is found.
func TestDoorAudit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.listenTCP()
	operator, reader := b.token("olga", "operate"), b.token("rita", "read")
	r := b.serve()
	base, _ := b.link()
	tcp := b.tcpDoor(base, "")
	overseen := obj{"oversight": obj{"mode": "supervised", "max_retries": 0}}
	b.submit(b.jobs(
		shell("works", b.workspace(), "printf 'one\\ntwo\\n' > new.txt; echo more >> README.md", nil),
		shell("fails", nil, "exit 7", obj{"max_attempts": 1}),
		with(shell("good", nil, "true", nil), overseen), with(shell("bad", nil, "true", nil), overseen), tomorrow(),
	))
	b.kind("agent", `echo '{"type":"command","phase":"start","id":"1","command":"go test ./login"}'
echo '{"type":"command","phase":"end","id":"1","exit_code":3,"ms":4}'
`+result("done"))
	r.reload(t, obj{"api": b.config["api"]}) // with the new worker
	as := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	asked := tool("asked", "Do it.")
	asked.Type, asked.Worker = job.WorkerTask, "agent"
	if a := tcp.ask(http.MethodPost, "/v1/jobs", asJSON(t, api.Submission{Source: "s", Jobs: []job.Spec{asked}}), as(operator)...); a.status != http.StatusCreated {
		b.fatalf("submit: %d %s", a.status, a.body)
	}
	r.end("asked", job.RunCompleted)
	r.end("works", job.RunCompleted)
	r.end("fails", job.RunFailed)
	b.eventually("two wait for a person", func() bool { return b.waiting() == "good bad" })
	for _, args := range [][]string{{"approve", "good", "-m", "fine"}, {"reject", "bad", "-m", "not so"}, {"pause"}, {"resume", "global"}} {
		if out, errs, code := b.command(args...); code != 0 {
			b.fatalf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
	if a := tcp.ask(http.MethodPost, "/v1/jobs/tomorrow/cancel", "", as(reader)...); a.status != http.StatusForbidden {
		t.Errorf("rita has cancelled: %d", a.status)
	}
	if a := tcp.ask(http.MethodPost, "/v1/jobs/tomorrow/cancel", "", as(operator)...); a.status != http.StatusOK {
		t.Errorf("olga has not cancelled: %d %s", a.status, a.body)
	}
	r.end("tomorrow", job.RunCancelled)
	r.end("good", job.RunCompleted)
	id := map[string]job.ID{}
	for _, name := range []string{"works", "fails", "asked", "good", "bad", "tomorrow"} {
		id[name] = b.idOf(name)
	}
	r.stop()
	b.soundState()

	own := b.owner()
	list := b.records()
	for _, want := range []struct {
		who, role, door, action string
		job                     job.ID
		says                    []string
	}{
		{own, "operate", "socket", audit.ActionRequest, "", []string{`"POST /v1/jobs"`, `"status":201`}},
		{"olga", "operate", "tcp", audit.ActionRequest, "", []string{`"POST /v1/jobs"`, `"status":201`, "asked"}},
		{"olga", "operate", "tcp", audit.ActionRequest, "", []string{"/v1/jobs/{job}/cancel", `"status":200`}},
		{"rita", "read", "tcp", audit.ActionRefused, "", []string{"/v1/jobs/{job}/cancel", `"status":403`}},
		{own, "operate", "socket", audit.ActionRequest, "", []string{"/v1/jobs/{job}/answer", "fine"}},
		{own, "operate", "socket", audit.ActionRequest, "", []string{"/v1/jobs/{job}/answer", "not so"}},
		{own, "operate", "socket", audit.ActionRequest, "", []string{"POST /v1/pause"}},
		{own, "operate", "socket", audit.ActionRequest, "", []string{"POST /v1/resume"}},
		{"scheduler", "system", "", audit.ActionSubmitted, id["works"], []string{`"works"`, `"tests"`}},
		{"scheduler", "system", "", audit.ActionJobEnded, id["fails"], []string{`"completed"`, `"failed"`}},
		{"scheduler", "system", "", audit.ActionJobEnded, id["tomorrow"], []string{"cancelled"}},
		{"scheduler", "system", "", audit.ActionAttemptEnded, id["fails"], []string{`"exit_code":7`}},
		{"scheduler", "system", "", audit.ActionAttemptEnded, id["works"], []string{"new.txt", "README.md", "patch_hash", "diff_stat"}},
		{"agent", "agent", "core", audit.ActionCommand, id["asked"], []string{"go test ./login", `"exit_code":3`, `"ms":4`}},
		{"scheduler", "system", "", audit.ActionCoreUp, "", nil},
	} {
		found := slices.ContainsFunc(list, func(r api.AuditRecord) bool {
			text := string(r.Detail)
			return r.Who.Name == want.who && r.Who.Role == want.role && r.Who.Door == want.door && r.Action == want.action && (want.job == "" || r.Job == want.job) &&
				!slices.ContainsFunc(want.says, func(w string) bool { return !strings.Contains(text, w) })
		})
		if !found {
			t.Errorf("no record of %+v", want)
		}
	}
	if t.Failed() {
		for _, r := range list {
			t.Logf("%d %+v %s %s %s %s", r.Seq, r.Who, r.Action, r.Target, r.Job, r.Detail)
		}
	}
	if report := b.verify(0); report.Records != len(list) {
		t.Errorf("%d records are whole, %d were told", report.Records, len(list))
	}

	// One byte in the middle.
	file := filepath.Join(b.state, "audit", "audit-000001.jsonl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := 1 + strings.Count(string(text[:len(text)/2]), "\n")
	at := len(text) / 2
	for text[at] < 'a' || text[at] > 'y' {
		at++
	}
	line += strings.Count(string(text[len(text)/2:at]), "\n")
	edited := slices.Clone(text)
	edited[at]++
	b.write(file, string(edited))
	report := b.verify(1)
	if p := report.Problems[0]; p.Kind != audit.Edited || p.File != "audit-000001.jsonl" || p.Line != line {
		t.Errorf("the edit of line %d: %+v", line, report.Problems)
	}
	if out, _, _ := b.command("audit", "verify"); !strings.Contains(out, fmt.Sprintf("audit-000001.jsonl:%d", line)) {
		t.Errorf("the edit of line %d is told as %s", line, out)
	}
	b.write(file, string(text))
	b.verify(0)
}

// owner is the name by which the socket knows the one who runs the test.
func (b *bench) owner() string {
	b.t.Helper()
	for _, r := range b.records() {
		if r.Action == audit.ActionRequest && r.Who.Door == "socket" {
			return r.Who.Name
		}
	}
	b.fatalf("nothing came by the socket")
	return ""
}

// TestDoorAuditKilled: a server that is killed again and again amid requests leaves a
// log that is whole, and the next one goes on with it.
func TestDoorAuditKilled(t *testing.T) {
	t.Parallel()
	const kills = 4
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 4}
	b.agent(`n=0; while test $n -lt 100; do n=$((n+1))
echo '{"type":"command","phase":"start","id":"'$n'","command":"make '$n'"}'
echo '{"type":"command","phase":"end","id":"'$n'","exit_code":0,"ms":1}'
done
` + result("done"))
	seen := 0
	var killed time.Time // at last
	for n := range kills {
		r := b.serve()
		var jobs []obj
		for i := range 10 {
			jobs = append(jobs, on(fmt.Sprintf("k%d-%d", n, i), "agent", nil))
		}
		b.submit(b.jobsOf("tests", fmt.Sprintf("k%d.yaml", n), jobs...))
		have, _ := r.awaitUpdates(0, 1)
		r.awaitUpdates(have, 100+100*n)
		r.kill()
		killed = time.Now()
		// Nobody has looked after it since.
		list := b.records()
		if len(list) <= seen {
			t.Errorf("kill %d: %d records, %d before", n, len(list), seen)
		}
		seen = len(list)
	}
	// The end of a line, as a power cut leaves it.
	file := filepath.Join(b.state, "audit", "audit-000001.jsonl")
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":99`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if report := b.verify(1); len(report.Problems) != 1 || report.Problems[0].Kind != audit.TornTail {
		t.Errorf("a torn end: %+v", report.Problems)
	}
	r := b.serve()
	c := b.client()
	b.submit(b.jobsOf("tests", "unharmed.yaml", on("unharmed", "agent", nil)))
	b.eventually("all have ended", func() bool {
		left, err := c.List(t.Context(), client.ListQuery{States: []job.EntryState{job.Queued, job.Dispatched}})
		return err == nil && left.Total == 0
	})
	r.stop()
	report := b.verify(0)
	t.Logf("%d records over %d kills: %v", report.Records, kills, report.Notes)
	list := b.records()
	torn := func(r api.AuditRecord) bool { return r.Action == audit.ActionTorn }
	if !slices.ContainsFunc(list, torn) {
		t.Error("no record of the torn end")
	}
	// What is stored of the attempts that nobody has killed is recorded: no kill costs
	// more than what was on its way.
	type event struct {
		job     job.ID
		attempt int
		event   int64
	}
	recorded := map[event]bool{}
	for _, r := range list {
		if r.Action == audit.ActionCommand {
			recorded[event{r.Job, r.Attempt, r.Event}] = true
		}
	}
	later := 0
	names := []string{"unharmed"}
	for i := range 10 {
		names = append(names, fmt.Sprintf("k%d-%d", kills-1, i))
	}
	for _, name := range names {
		j := b.show(name)
		for _, e := range b.storedEvents(name) {
			if e.Kind != job.EventCommand || e.ExitCode == nil || j.Attempts[e.Attempt-1].Started.Before(killed) {
				continue
			}
			if later++; !recorded[event{e.Job, e.Attempt, e.Seq}] {
				t.Errorf("command %q of %s, attempt %d, is not recorded", e.Command, name, e.Attempt)
			}
		}
	}
	if later == 0 {
		t.Error("no command was run after the last kill")
	}
	b.soundState()
}
