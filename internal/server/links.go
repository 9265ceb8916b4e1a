package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// AnswerPath is where the links of scheduler.Links lead, with CodeParameter in the query.
const (
	AnswerPath    = "/answer"
	CodeParameter = "code"
)

// links answers the links by which people without a login answer what waits for them. Opening one only shows what is asked, since
// programs that look at mail and messages open links too; the form's button answers. The code stands in the form, so that no
// cookie is needed, and no other site can send it.
type links struct {
	entries entries
	sched   *scheduler.Scheduler
	wrong   func(*http.Request) error                         // Options.WrongLink
	used    func(req *http.Request, id job.ID, by, is string) // Options.LinkUsed
}

func (l links) routes(r *router) {
	page := func(h func(http.ResponseWriter, *http.Request) error) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			err := h(w, req)
			if errors.Is(err, queue.ErrNotFound) {
				if err = l.miss(req); err == nil {
					linkPage{Title: "This link does not work", Note: "It is unknown, or its time is over."}.write(w, http.StatusNotFound)
				}
			}
			if err != nil {
				r.refuse(w, req, err)
			}
		})
	}
	r.plain(route{id: "show-link", method: "GET", path: AnswerPath, role: public, tag: "conversation",
		about: "Return the page of a one-time link.\nIt shows what is asked, and changes nothing. The query has the code of the link."}, "text/html", AnswerPath, page(l.show))
	r.plain(route{id: "use-link", method: "POST", path: AnswerPath, role: public, tag: "conversation",
		about: "Answer by a one-time link.\nThe body is the form of its page."}, "text/html", AnswerPath, page(l.answer))
}

func (l links) miss(req *http.Request) error {
	if l.wrong == nil {
		return nil
	}
	return l.wrong(req)
}

func (l links) show(w http.ResponseWriter, req *http.Request) error {
	code := req.URL.Query().Get(CodeParameter)
	to, err := l.sched.Links.Find(req.Context(), code)
	if err != nil {
		return err
	}
	p, err := l.page(req.Context(), &to)
	if err != nil {
		return err
	}
	p.Code = code
	p.write(w, http.StatusOK)
	return nil
}

func (l links) answer(w http.ResponseWriter, req *http.Request) error {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return newProblem("unsupported_media_type", http.StatusUnsupportedMediaType, "the body is no form, want application/x-www-form-urlencoded")
	}
	req.Body = http.MaxBytesReader(w, req.Body, smallBody)
	if err := req.ParseForm(); err != nil {
		return badBody(err, smallBody)
	}
	form := req.PostForm
	to, err := l.sched.Links.Find(req.Context(), form.Get(CodeParameter))
	if err != nil {
		return err
	}
	decision, text := form.Get("answer"), form.Get("text")
	if l.used != nil {
		said, _ := json.Marshal(map[string]any{"attempt": to.Attempt, "question": to.Number, "answer": decision, "text": text}) //nolint:errcheck // it has a JSON form
		l.used(req, to.Job, to.By(), string(said))
	}
	bad := &invalid{}
	words(bad, "body.text", text, false)
	if err := bad.or(); err != nil {
		return err
	}
	wrong := l.give(req.Context(), &to, decision, text)
	p, err := l.page(req.Context(), &to)
	switch {
	case err != nil:
		return err
	case wrong == nil:
		p.Note = "Thank you. " + p.Note
		p.write(w, http.StatusOK)
	case errors.Is(wrong, queue.ErrIllegalTransition) || errors.Is(wrong, scheduler.ErrNoComment):
		p.Code, p.Problem = form.Get(CodeParameter), wrong.Error()
		p.write(w, http.StatusConflict)
	default:
		return wrong
	}
	return nil
}

// give answers what a link is about. More than this one question is allowed only by who has logged in.
func (l links) give(ctx context.Context, to *scheduler.Link, decision, text string) error {
	switch {
	case to.Number > 0:
		_, err := l.sched.Conversations.Answer(ctx, to.Job, to.Number, api.AnswerQuestion{Decision: decision, Text: text, By: to.By()})
		return err
	case decision != "approve" && decision != "reject":
		return queue.Refuse("%q is no answer, want approve or reject", decision)
	}
	_, err := l.sched.Approvals.Decide(ctx, to.Job, to.Attempt, api.Answer{Approved: decision == "approve", Comment: text, By: to.By()})
	return err
}

// page returns the page of a link, as things stand.
func (l links) page(ctx context.Context, to *scheduler.Link) (linkPage, error) {
	e, err := l.entries.store.Get(ctx, to.Job)
	if err != nil {
		return linkPage{}, err
	}
	p := linkPage{Title: "An agent asks"}
	p.add("Job", fmt.Sprintf("%s (%s) of %s", e.Spec.Name, e.ID, e.Spec.Tenant))
	if to.Number > 0 {
		q, err := l.sched.Conversations.Question(ctx, &e, to.Number)
		if err != nil {
			return linkPage{}, err
		}
		p.question(&q)
		return p, nil
	}
	attempts, err := l.entries.store.Attempts(ctx, to.Job)
	if err != nil {
		return linkPage{}, err
	}
	p.work(&e, attempts, to.Attempt)
	return p, nil
}

// fact is something that a page shows; Block: in lines of its own, as it is.
type fact struct {
	Name, Text string
	Block      bool
}

type button struct{ Value, Text string }

// linkPage is the page of a link. Agents wrote most of it: it is cleaned, escaped and bounded.
type linkPage struct {
	Title   string
	Facts   []fact
	Note    string // what there is to say once it was answered
	Problem string // why an answer was none
	Buttons []button
	Ask     string // for words; "": none are wanted
	Code    string
}

// maxShown bounds each text of a page, in bytes.
const maxShown = 64 << 10

func (p *linkPage) add(name, text string) { p.fact(fact{Name: name, Text: text}) }

func (p *linkPage) block(name, text string) { p.fact(fact{Name: name, Text: text, Block: true}) }

func (p *linkPage) fact(f fact) {
	if f.Text == "" {
		return
	}
	text, _ := job.Cut(f.Text, maxShown) // which leaves a mark
	f.Text = terminal.Visible(text, "\n\t")
	p.Facts = append(p.Facts, f)
}

func (p *linkPage) question(q *api.Question) {
	p.add("Attempt", fmt.Sprint(q.Attempt))
	p.block("Question", q.Text)
	p.add("Tool", q.Tool)
	p.block("Command", q.Command)
	p.add("File", q.Path)
	p.add("Host", q.Host)
	p.block("Diff", q.Diff)
	switch {
	case q.State == api.QuestionAnswered:
		p.Note = "It was answered."
		if a := q.Answer; a != nil {
			p.add("Answer", a.Decision)
			p.block("Said", cmp.Or(a.Text, string(a.Value)))
			p.add("By", a.By)
			p.add("At", a.At.Format(time.RFC3339))
		}
	case q.State != api.QuestionOpen:
		p.Note = "The agent has taken the question back."
	case len(q.Decisions) == 0:
		p.Ask, p.Buttons = "Your answer", []button{{"", "Answer"}}
	default:
		p.Ask, p.Buttons = "Words for the agent, if you like", []button{{api.Allow, "Allow once"}, {api.Deny, "Deny"}}
	}
	if q.State == api.QuestionOpen && q.Until != nil {
		p.add("Waits until", q.Until.Format(time.RFC3339))
	}
}

func (p *linkPage) work(e *queue.Entry, attempts []job.Attempt, attempt int) {
	p.Title = "Work waits for approval"
	p.add("Attempt", fmt.Sprint(attempt))
	for i := range attempts {
		if o := attempts[i].Outcome; attempts[i].Number == attempt && o != nil {
			p.block("Answer of the agent", o.Answer)
			p.block("Changed", o.DiffStat)
			p.block("Failed", strings.TrimPrefix(string(o.Class)+": "+o.Message, ": "))
		}
	}
	a := e.Approval
	if a == nil || a.Attempt != attempt {
		p.Note = "It was answered."
		return
	}
	p.block("Asks because", a.Why)
	if a.DecidedAt != nil || e.Held != job.HeldForApproval {
		p.Note = "It was answered."
		if a.DecidedAt != nil {
			p.add("Answer", map[bool]string{true: "approved", false: "rejected"}[a.Approved])
			p.block("Said", a.Comment)
			p.add("By", a.By)
			p.add("At", a.DecidedAt.Format(time.RFC3339))
		}
		return
	}
	p.Ask, p.Buttons = "What is to be done better, if you reject it", []button{{"approve", "Approve"}, {"reject", "Reject"}}
	if a.Until != nil {
		p.add("Without an answer", fmt.Sprintf("%s at %s", a.Default, a.Until.Format(time.RFC3339)))
	}
}

var (
	//go:embed link.html
	linkText string
	//go:embed link.css
	linkStyle    template.CSS
	linkTemplate = template.Must(template.New("link").Parse(linkText))
	// linkPolicy lets the page load nothing, and send its form here.
	linkPolicy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'", digest(string(linkStyle)))
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// write answers with the page. The relative address of its form holds behind a proxy, too, that adds a prefix.
func (p linkPage) write(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", linkPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	linkTemplate.Execute(w, struct { //nolint:errcheck // the client has gone
		linkPage
		Style template.CSS
	}{p, linkStyle})
}
