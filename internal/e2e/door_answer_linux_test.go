package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// webhook is what a webhook was told. It refuses each payload once, with what it was sent.
type webhook struct {
	*httptest.Server
	mu    sync.Mutex
	tried map[string]bool
	told  []scheduler.Question
}

func newWebhook(t *testing.T) *webhook {
	h := &webhook{tried: map[string]bool{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.tried[string(body)] {
			h.tried[string(body)] = true
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write(body) //nolint:errcheck // the other end has gone
			return
		}
		var q scheduler.Question
		if err != nil || json.Unmarshal(body, &q) != nil {
			t.Errorf("the webhook was sent %q, %v", body, err)
		}
		h.told = append(h.told, q)
	}))
	t.Cleanup(h.Close)
	return h
}

// code returns that of the link that was told for a job's attempt.
func (h *webhook) code(b *bench, name job.Name, attempt int) (code string) {
	b.t.Helper()
	b.eventually("the webhook is told of "+string(name), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, q := range h.told {
			if q.Name != name || q.Attempt != attempt {
				continue
			}
			link, err := url.Parse(q.Link)
			if err != nil || link.Host != "agents.example.com" || link.Path != "/sched/answer" {
				b.fatalf("the webhook was told the link %q", q.Link)
			}
			code = link.Query().Get("code")
			return true
		}
		return false
	})
	return code
}

// TestDoorAnswerByLink: who was told a link answers by it without a login, also after a restart of the scheduler and for the attempt
// that asks the same again; nothing but the form's button does, and the code is in no log.
func TestDoorAnswerByLink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.unheld()
	b.listenTCP()
	b.config["api"].(obj)["public_url"] = "https://agents.example.com/sched/"
	b.config["log"] = obj{"level": "debug"}
	hook := newWebhook(t)
	b.config["escalation"] = obj{"webhook": hook.URL + "/secret"}
	b.kind("agent", `echo '{"type":"hello","protocol":1,"converses":["questions"]}'
echo '{"type":"question","id":"1","kind":"command","command":"make deploy","text":"run make deploy?"}'
read -r answer
case $answer in *allow*) `+result("deployed")+`;; *) `+result("denied")+`;; esac`)
	r := b.serve()
	b.submit(b.jobs(
		on("deploy", "agent", obj{"workspace": obj{"isolation": "none"}, "capabilities": []string{"read"}, "ask": obj{"for": []string{"commands"}, "wait": "10m"}}),
		with(shell("work", nil, "true", nil), obj{"oversight": obj{"mode": "supervised", "max_retries": 0}}),
	))
	first, work := hook.code(b, "deploy", 1), hook.code(b, "work", 1)

	r.kill()
	r = b.serve()
	second := hook.code(b, "deploy", 2) // the next attempt asks the same
	base, _ := b.link()
	door := b.tcpDoor(base, "")
	open := func() int {
		t.Helper()
		list, err := b.client().OpenQuestions(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Questions)
	}
	for range 5 {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			if a := door.ask(method, "/answer?code="+first, "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"); a.status != http.StatusOK {
				t.Errorf("%s: %d %s", method, a.status, a.body)
			}
		}
	}
	if n := open(); n != 1 {
		t.Errorf("%d questions are open after the link was looked at, want 1", n)
	}
	post := func(code, answer, text string, headers ...string) reply {
		t.Helper()
		form := url.Values{"code": {code}, "answer": {answer}, "text": {text}}.Encode()
		return door.ask(http.MethodPost, "/answer", form, append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
	}
	if a := post(first, "allow", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Origin", "https://evil.example"); a.status != http.StatusForbidden {
		t.Errorf("the form of another site: %d %s", a.status, a.body)
	}
	if a := post(first, "allow", "go on", "Sec-Fetch-Site", "same-origin", "Origin", "null"); a.status != http.StatusOK || !strings.Contains(a.body, "Thank you") {
		t.Errorf("the form: %d %s", a.status, a.body)
	}
	for _, code := range []string{first, second} {
		if a := post(code, "deny", ""); a.status != http.StatusConflict || !strings.Contains(a.body, "answered already by link of webhook 127.0.0.1: allow") {
			t.Errorf("a second answer: %d %s", a.status, a.body)
		}
	}
	r.end("deploy", job.RunCompleted)
	if o := b.last(b.show("deploy")); o.Answer != "deployed" {
		t.Errorf("the agent was answered something else: %+v", o)
	}
	if a := post(work, "approve", "fine"); a.status != http.StatusOK {
		t.Errorf("the work: %d %s", a.status, a.body)
	}
	r.end("work", job.RunCompleted)

	// Guesses are all answered the same, and soon by nothing.
	statuses := map[int]int{}
	for range 40 {
		a := door.ask(http.MethodGet, "/answer?code=GUESS", "")
		statuses[a.status]++
	}
	if statuses[http.StatusNotFound] == 0 || statuses[http.StatusTooManyRequests] == 0 || len(statuses) != 2 {
		t.Errorf("guesses were answered %v", statuses)
	}
	if a := door.ask(http.MethodGet, "/answer?code="+first, ""); a.status != http.StatusOK {
		t.Errorf("a link that is right, from where there were guesses: %d", a.status)
	}
	deploy := b.idOf("deploy")
	r.stop()
	b.soundState()
	if !slices.ContainsFunc(b.records(), func(rec api.AuditRecord) bool {
		return rec.Who.Name == "link of webhook 127.0.0.1" && rec.Who.Door == "link" && rec.Action == audit.ActionRequest && rec.Job == deploy &&
			strings.Contains(string(rec.Detail), "POST /answer") && strings.Contains(string(rec.Detail), "go on")
	}) {
		t.Errorf("the audit log has no answer by a link")
	}
	out, _, _ := b.command("audit", "tail", "-n", "1000", "--json")
	said := map[string]string{"the audit log": out, "standard error of the server": r.stderr.String(), "what the server printed": asJSON(t, r.updates)}
	b.search([]planted{{name: "first", value: first}, {name: "second", value: second}, {name: "work", value: work}}, said)
}
