package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// linked is a fixed world, and what is asked of its links.
type linked struct{ *fixed }

// link makes a link to the question of a job, or to its work if number is 0.
func (w linked) link(n, number int) string {
	w.Helper()
	code, err := w.sched.Links.New(w.Context(), &scheduler.Question{Job: fixedID(n), Number: number, Approval: queue.Approval{Attempt: 1}}, "webhook alerts.example.com", time.Hour)
	w.must(err)
	return code
}

func (w linked) do(r *http.Request) *httptest.ResponseRecorder {
	out := httptest.NewRecorder()
	w.server.Handler().ServeHTTP(out, r)
	return out
}

func (w linked) get(code string) *httptest.ResponseRecorder {
	return w.do(httptest.NewRequestWithContext(w.Context(), "GET", "/answer?code="+url.QueryEscape(code), http.NoBody))
}

func (w linked) post(code, answer, text string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(w.Context(), "POST", "/answer", strings.NewReader(url.Values{"code": {code}, "answer": {answer}, "text": {text}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.do(r)
}

// state returns how the question of job 4 stands.
func (w linked) state() api.Question {
	w.Helper()
	e, err := w.store.Get(w.Context(), fixedID(4))
	w.must(err)
	q, err := w.sched.Conversations.Question(w.Context(), &e, 1)
	w.must(err)
	return q
}

func inLinks(t *testing.T, f func(linked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := linked{newFixed(t)}
		defer w.close()
		f(w)
	})
}

// ask replaces the question of job 4.
func (w linked) ask(change func(*api.Question)) {
	w.Helper()
	q := w.state()
	change(&q)
	text, err := json.Marshal(struct {
		api.Question
		ID  string `json:"id"`
		Key string `json:"key"`
	}{q, "q", "k"})
	w.must(err)
	w.must(w.store.Apply(w.Context(), queue.Write{Record: queue.Record{Space: queue.JobSpace(fixedID(4), "questions"), Key: "000001", At: began, Value: text}}))
}

// TestLinkOnlyShows: whatever looks at a link answers nothing; the form's button does, once, and others see who was first.
func TestLinkOnlyShows(t *testing.T) {
	inLinks(t, func(w linked) {
		w.ask(func(q *api.Question) {
			q.Text, q.Path, q.Diff = "run <script>alert(1)</script>\x1b[2J\u202e?", "a/b.go", "-old\n+<b>new</b>\n"
		})
		code, other := w.link(4, 1), w.link(4, 1)
		for range 5 {
			for _, method := range []string{"GET", "HEAD"} {
				r := httptest.NewRequestWithContext(w.Context(), method, "/answer?code="+code+"&answer=allow", http.NoBody)
				r.Header.Set("User-Agent", "LinkScanner/1.0")
				if out := w.do(r); out.Code != http.StatusOK {
					t.Fatalf("%s: %d %s", method, out.Code, out.Body)
				}
			}
		}
		out := w.get(code)
		page := out.Body.String()
		for _, want := range []string{"deploy", "<pre>make</pre>", "a/b.go", "&lt;b&gt;new&lt;/b&gt;", "&lt;script&gt;", "^[[2J", "&lt;U&#43;202E&gt;", `method="post"`, `value="` + code + `"`, "Allow once", "Deny"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page has no %s: %s", want, page)
			}
		}
		for _, bad := range []string{"<script>", "\x1b", "\u202e", "<b>"} {
			if strings.Contains(page, bad) {
				t.Errorf("the page has %q: %s", bad, page)
			}
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8",
		} {
			if got := out.Header().Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if csp := out.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("policy %q", csp)
		}
		if q := w.state(); q.State != api.QuestionOpen {
			t.Fatalf("looking at the link has answered: %+v", q)
		}

		// A code in the address of a POST is none, and neither is a body that a page of another site could not be kept from sending.
		r := httptest.NewRequestWithContext(w.Context(), "POST", "/answer?answer=allow&code="+code, http.NoBody)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if out := w.do(r); out.Code != http.StatusNotFound {
			t.Errorf("a code in the address: %d", out.Code)
		}
		r = httptest.NewRequestWithContext(w.Context(), "POST", "/answer", strings.NewReader("answer=allow&code="+code))
		r.Header.Set("Content-Type", "text/plain")
		if out := w.do(r); out.Code != http.StatusUnsupportedMediaType {
			t.Errorf("a body that is no form: %d", out.Code)
		}
		if out := w.post(code, "maybe", ""); out.Code != http.StatusConflict || !strings.Contains(out.Body.String(), "maybe") || !strings.Contains(out.Body.String(), "Allow once") {
			t.Errorf("no answer: %d %s", out.Code, out.Body)
		}

		if out := w.post(code, api.Allow, "go <ahead>"); out.Code != http.StatusOK || !strings.Contains(out.Body.String(), "Thank you") || strings.Contains(out.Body.String(), "<form") {
			t.Errorf("answered: %d %s", out.Code, out.Body)
		}
		a := w.state().Answer
		if a == nil || a.Decision != api.Allow || a.Text != "go <ahead>" || a.Scope != api.GrantOnce || a.By != "link of webhook alerts.example.com" {
			t.Fatalf("answer %+v", a)
		}
		for _, again := range []string{code, other} {
			out := w.post(again, api.Deny, "")
			if body := out.Body.String(); out.Code != http.StatusConflict || !strings.Contains(body, "answered already by link of webhook alerts.example.com: allow") || !strings.Contains(body, "go &lt;ahead&gt;") || strings.Contains(body, "<form") {
				t.Errorf("answered again: %d %s", out.Code, body)
			}
		}
		if out := w.get(other); out.Code != http.StatusOK || !strings.Contains(out.Body.String(), "It was answered.") {
			t.Errorf("looked at again: %d %s", out.Code, out.Body)
		}
		if b := w.state().Answer; b.Decision != a.Decision || !b.At.Equal(a.At) {
			t.Errorf("the answer has become %+v", b)
		}
	})
}

// TestLinkUnknown: a code that is wrong, over, half or of a job that was forgotten opens the same page; the store holds no code.
func TestLinkUnknown(t *testing.T) {
	inLinks(t, func(w linked) {
		code, gone := w.link(4, 1), w.link(99, 1)
		spaces, err := w.store.Spaces(w.Context(), "links/")
		w.must(err)
		for _, space := range spaces {
			list, err := w.store.Records(w.Context(), space, "", 10)
			w.must(err)
			for _, r := range list {
				if strings.Contains(space+r.Key+string(r.Value), code) {
					t.Errorf("the store has the code: %s %s", space, r.Value)
				}
			}
		}
		refused := w.get("wrong")
		if refused.Code != http.StatusNotFound || refused.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Fatalf("%d %v", refused.Code, refused.Header())
		}
		same := func(what string, out *httptest.ResponseRecorder) {
			t.Helper()
			if out.Code != refused.Code || out.Body.String() != refused.Body.String() {
				t.Errorf("%s: %d %s", what, out.Code, out.Body)
			}
		}
		same("none", w.get(""))
		same("half", w.get(code[:20]))
		same("long", w.get(strings.Repeat("A", 10_000)))
		same("forgotten", w.get(gone))
		same("wrong, posted", w.post("wrong", api.Allow, ""))
		time.Sleep(time.Hour - time.Second)
		if out := w.get(code); out.Code != http.StatusOK {
			t.Errorf("before its time is over: %d", out.Code)
		}
		time.Sleep(time.Second)
		same("over", w.get(code))
		same("over, posted", w.post(code, api.Allow, ""))
		if q := w.state(); q.State != api.QuestionOpen {
			t.Errorf("question %+v", q)
		}
	})
}

// TestLinkWords: a question that wants words has a field for them, and one that was taken back has nothing.
func TestLinkWords(t *testing.T) {
	inLinks(t, func(w linked) {
		w.ask(func(q *api.Question) { q.Kind, q.Text, q.Command, q.Decisions = "words", "which parser?", "", nil })
		code := w.link(4, 1)
		if page := w.get(code).Body.String(); !strings.Contains(page, "Your answer") || strings.Contains(page, "Allow") {
			t.Errorf("page %s", page)
		}
		if out := w.post(code, "", " "); out.Code != http.StatusConflict || !strings.Contains(out.Body.String(), "wants words") {
			t.Errorf("no words: %d %s", out.Code, out.Body)
		}
		if out := w.post(code, "", "the second"); out.Code != http.StatusOK || w.state().Answer.Text != "the second" {
			t.Errorf("answered: %d %s", out.Code, out.Body)
		}
		w.ask(func(q *api.Question) { q.State, q.Answer = api.QuestionWithdrawn, nil })
		if page := w.get(code).Body.String(); !strings.Contains(page, "taken the question back") || strings.Contains(page, "<form") {
			t.Errorf("page %s", page)
		}
	})
}

// TestLinkOfWork: a link for the work that oversight asks about is for that attempt alone.
func TestLinkOfWork(t *testing.T) {
	inLinks(t, func(w linked) {
		code := w.link(3, 0)
		page := w.get(code).Body.String()
		for _, want := range []string{"review", "it asks", "<pre>done</pre>", "Approve", "Reject", "reject at 2000-01-01T01:00:00Z"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page has no %s: %s", want, page)
			}
		}
		later, err := w.sched.Links.New(w.Context(), &scheduler.Question{Job: fixedID(3), Approval: queue.Approval{Attempt: 2}}, "command page", time.Hour)
		w.must(err)
		if out := w.post(later, "approve", ""); out.Code != http.StatusConflict {
			t.Errorf("a link for another attempt: %d %s", out.Code, out.Body)
		}
		for answer, want := range map[string]string{"reject": "a rejection needs a comment", "allow": "want approve or reject"} {
			if out := w.post(code, answer, ""); out.Code != http.StatusConflict || !strings.Contains(out.Body.String(), want) || !strings.Contains(out.Body.String(), "<form") {
				t.Errorf("%s: %d %s", answer, out.Code, out.Body)
			}
		}
		if out := w.post(code, "approve", "fine"); out.Code != http.StatusOK {
			t.Errorf("approved: %d %s", out.Code, out.Body)
		}
		e, err := w.store.Get(w.Context(), fixedID(3))
		w.must(err)
		if a := e.Approval; e.State != job.Completed || !a.Approved || a.By != "link of webhook alerts.example.com" || a.Comment != "fine" {
			t.Errorf("%s, %+v", e.State, a)
		}
		if out := w.post(code, "reject", "no"); out.Code != http.StatusConflict || !strings.Contains(out.Body.String(), "It was answered.") {
			t.Errorf("answered again: %d %s", out.Code, out.Body)
		}
	})
}

// TestBadPattern: what is allowed for good by a pattern that is none is refused with the pattern and what would be right.
func TestBadPattern(t *testing.T) {
	inLinks(t, func(w linked) {
		for pattern, want := range map[string]string{" ": "want a pattern such as 'go test *'", "go test *\nrm *": "is not a pattern in one line"} {
			_, err := w.sched.Conversations.Answer(w.Context(), fixedID(4), 1, api.AnswerQuestion{Decision: api.Allow, Scope: api.GrantTenant, Pattern: pattern})
			if !errors.Is(err, queue.ErrIllegalTransition) || !strings.Contains(err.Error(), strconv.Quote(pattern)) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", pattern, err)
			}
		}
		if q := w.state(); q.State != api.QuestionOpen {
			t.Errorf("question %+v", q)
		}
	})
}
