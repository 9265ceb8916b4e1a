package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// conversing is a scheduler with jobs that are talked with.
type conversing struct {
	mu        sync.Mutex
	jobs      map[string]*api.JobDetail
	events    map[string][]api.Event
	messages  map[string][]api.Message
	questions map[string][]api.Question
	told      []api.Say
	answered  []api.AnswerQuestion
	tell      func(ref string, in api.Say) (api.Said, int) // with mu held; an HTTP status other than 0 refuses it
}

func (s *conversing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/jobs/"), "/")
	ref, what := parts[0], strings.Join(parts[1:], "/")
	answer := func(v any) { json.NewEncoder(w).Encode(v) }
	refuse := func(status int) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		answer(api.Problem{Type: api.ProblemType + "x", Title: "x", Status: status, Detail: fmt.Sprintf("refused with %d", status)})
	}
	j := s.jobs[ref]
	if j == nil {
		refuse(http.StatusNotFound)
		return
	}
	switch r.Method + " " + what {
	case "GET ":
		answer(j)
	case "GET events":
		after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		page := api.Events{Events: []api.Event{}}
		for _, e := range s.events[ref] {
			if e.Cursor > after && len(page.Events) < limit {
				page.Events = append(page.Events, e)
			}
		}
		answer(page)
	case "GET messages":
		answer(api.Messages{Messages: s.messages[ref]})
	case "GET questions":
		answer(api.Questions{Questions: s.questions[ref]})
	case "POST messages":
		var in api.Say
		json.NewDecoder(r.Body).Decode(&in)
		s.told = append(s.told, in)
		said, status := s.tell(ref, in)
		if status != 0 {
			refuse(status)
			return
		}
		answer(said)
	case "POST questions/1/answer":
		var in api.AnswerQuestion
		json.NewDecoder(r.Body).Decode(&in)
		s.answered = append(s.answered, in)
		q := &s.questions[ref][0]
		q.State, q.Waits, q.Answer = api.QuestionAnswered, false, &api.QuestionAnswer{Decision: in.Decision, Text: in.Text, By: in.By, At: time.Now()}
		answer(api.AnsweredQuestion{Question: *q, Note: "it was given to the agent"})
	default:
		refuse(http.StatusNotFound)
	}
}

// addJob adds a job with that many events, a second apart from noon on.
func (s *conversing) addJob(id string, state job.EntryState, events int) *api.JobDetail {
	j := &api.JobDetail{Job: api.Job{ID: job.ID(id), State: state, CreatedAt: talkNoon, Status: &job.Status{State: job.Running}}}
	if state == job.Completed {
		j.Job.Status.State = job.RunCompleted
	}
	j.Job.Spec.Name, j.Job.Spec.Type, j.Job.Spec.Instructions = job.Name("name-"+id), job.WorkerTask, "do "+id
	for n := range events {
		s.happens(id, fmt.Sprintf("%s says %d", id, n+1), talkNoon.Add(time.Duration(n+1)*time.Second))
	}
	s.jobs[id] = j
	return j
}

func (s *conversing) happens(id, text string, at time.Time) {
	e := api.Event{Cursor: int64(len(s.events[id]) + 1)}
	e.Job, e.Attempt, e.Kind, e.Text, e.Time = job.ID(id), 1, job.EventText, text, at
	s.events[id] = append(s.events[id], e)
}

var talkNoon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// page is a talkView that a test reads and writes.
type page struct {
	written chan terminal.Written

	mu   sync.Mutex
	text bytes.Buffer
	torn error // of what is shown
	grew chan struct{}
}

func (p *page) Show(lines []terminal.TalkLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.grew <- struct{}{}:
	default:
	}
	if p.torn != nil {
		return p.torn
	}
	return terminal.WriteTalk(&p.text, lines)
}
func (p *page) Stand(terminal.TalkStand)         {}
func (p *page) Written() <-chan terminal.Written { return p.written }
func (p *page) Close() error                     { return nil }

// await waits until a text is on the page.
func (p *page) await(t *testing.T, text string) {
	t.Helper()
	for {
		p.mu.Lock()
		shown := strings.Contains(p.text.String(), text)
		p.mu.Unlock()
		if shown {
			return
		}
		select {
		case <-p.grew:
		case <-t.Context().Done():
			t.Fatalf("%q was never shown", text)
		}
	}
}

// sit has somebody take part in the conversation of a job, until the page's written is closed.
func (s *conversing) sit(t *testing.T, id string, person bool) (p *page, left func() *attached) {
	t.Helper()
	p, ended := s.open(t, id, person)
	return p, func() *attached {
		t.Helper()
		close(p.written)
		a, err := ended()
		if err != nil {
			t.Error(err)
		}
		return a
	}
}

// open is sit; ended waits until the conversation is over.
func (s *conversing) open(t *testing.T, id string, person bool) (p *page, ended func() (*attached, error)) {
	t.Helper()
	door := httptest.NewServer(s)
	m := newTestMain(t, nil)
	m.at.server = door.URL
	m.con.getenv = func(name string) string { return map[string]string{tokenVariable: "secret"}[name] }
	peer, err := m.at.open()
	if err != nil {
		t.Fatal(err)
	}
	p = &page{written: make(chan terminal.Written), grew: make(chan struct{}, 1)}
	a := &attached{con: m.con, at: m.at, p: peer, by: "ann", view: p, person: person, every: time.Millisecond}
	over := make(chan error, 1)
	go func() {
		j, err := peer.Job(t.Context(), id)
		if err == nil {
			err = a.converse(t.Context(), j)
		}
		over <- err
	}()
	return p, func() (*attached, error) {
		err := <-over
		peer.Close()
		door.Close()
		return a, err
	}
}

func newConversing() *conversing {
	return &conversing{jobs: map[string]*api.JobDetail{}, events: map[string][]api.Event{}, messages: map[string][]api.Message{}, questions: map[string][]api.Question{}}
}

// A message to a job that has ended goes on in another, which the conversation follows; what no scheduler
// answered is said again, under the same id, and before what was written after it.
func TestAttachFollows(t *testing.T) {
	s := newConversing()
	s.addJob("first", job.Completed, 1250) // more than a look shows
	refuse := []int{http.StatusServiceUnavailable, http.StatusBadGateway, 0, 0, http.StatusConflict}
	s.tell = func(ref string, in api.Say) (api.Said, int) {
		status := refuse[0]
		if refuse = refuse[1:]; status != 0 {
			return api.Said{}, status
		}
		if ref == "first" {
			s.addJob("second", job.Dispatched, 0)
			ref = "second"
		}
		m := api.Message{Number: len(s.messages[ref]) + 1, ID: in.ID, Job: job.ID(ref), From: in.By, Text: in.Text, State: api.MessageFolded, At: talkNoon}
		s.messages[ref] = append(s.messages[ref], m)
		s.happens(ref, "told: "+in.Text, talkNoon)
		return api.Said{Message: m, Note: "it goes on now"}, 0
	}
	p, left := s.sit(t, "first", true)
	p.await(t, "first says 1250")
	p.written <- terminal.Written{Text: "go on"}
	p.written <- terminal.Written{Text: "and on"}
	p.written <- terminal.Written{Text: "too much"}
	p.await(t, "told: and on")
	p.await(t, "refused with 409")
	a := left()
	text := p.text.String()
	for _, once := range []string{"first says 1\n", "first says 200\n", "first says 201\n", "first says 1001\n", "first says 1250\n", "job       name-second  second  tenant , worker , goes on from that\n", "do first\n", "ann       go on\n", "told: go on\n", "ann       and on\n", "not told yet"} {
		if n := strings.Count(text, once); n != 1 {
			t.Errorf("%q is shown %d times", once, n)
		}
	}
	var order []int
	for _, part := range []string{"first says 1250", "not told yet", "name-second", "ann       go on", "told: and on"} {
		order = append(order, strings.Index(text, part))
	}
	if !slices.IsSorted(order) {
		t.Errorf("the order is wrong:\n%s", text)
	}
	ids := map[string]string{}
	for _, say := range s.told {
		ids[say.ID] += say.Text + ";"
	}
	if len(s.told) != 5 || len(ids) != 3 || ids[s.told[0].ID] != "go on;go on;go on;" {
		t.Errorf("it was told %+v", s.told)
	}
	if a.refusals != 1 || len(a.todo) != 0 {
		t.Errorf("%d lines were refused, %d are left", a.refusals, len(a.todo))
	}
}

// Somebody else's message brings the follow-up, too; one that there is already is gone on with.
func TestAttachFollowsOthers(t *testing.T) {
	s := newConversing()
	s.addJob("first", job.Completed, 1)
	s.addJob("second", job.Completed, 1)
	s.addJob("third", job.Dispatched, 1)
	s.messages["first"] = []api.Message{{Number: 1, Job: "first", From: "ben", Text: "more", State: api.MessageFolded, FollowUp: "second", At: talkNoon}}
	p, left := s.sit(t, "first", true)
	p.await(t, "second says 1")
	s.mu.Lock()
	s.messages["second"] = []api.Message{{Number: 1, Job: "second", From: "ben", Text: "and more", State: api.MessageFolded, FollowUp: "third", At: talkNoon}}
	s.mu.Unlock()
	p.await(t, "third says 1")
	left()
	for _, once := range []string{"first says 1", "ben       more", "second says 1", "ben       and more", "third says 1"} {
		if n := strings.Count(p.text.String(), once); n != 1 {
			t.Errorf("%q is shown %d times", once, n)
		}
	}
}

// What was said and asked stands between the events where it was, and the states that follow are told.
func TestAttachOrder(t *testing.T) {
	s := newConversing()
	s.addJob("talk", job.Dispatched, 4)
	at := func(seconds float64) time.Time { return talkNoon.Add(time.Duration(seconds * float64(time.Second))) }
	s.messages["talk"] = []api.Message{{Number: 1, Job: "talk", From: "ben", Text: "early", State: api.MessageFolded, At: at(1.5)}, {Number: 2, Job: "talk", From: "ben", Text: "late", State: api.MessageQueued, At: at(9)}}
	s.questions["talk"] = []api.Question{{Number: 1, Job: "talk", Text: "may I?", Decisions: []string{api.Allow}, State: api.QuestionAnswered, AskedAt: at(2.5), Answer: &api.QuestionAnswer{Decision: api.Deny, By: "ben", At: at(3.5)}}}
	p, left := s.sit(t, "talk", true)
	p.await(t, "message 2: queued")
	s.mu.Lock()
	s.messages["talk"][1].State = api.MessageFolded
	s.mu.Unlock()
	p.await(t, "message 2: folded")
	left()
	want := []string{"says 1", "early", "says 2", "may I?", "says 3", "answer 1  no (ben)", "says 4", "late", "message 2: queued", "message 2: folded"}
	rest := p.text.String()
	for _, part := range want {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("%q does not come where it was:\n%s", part, p.text.String())
		}
		rest = after
	}
}

// What cannot be shown ends it, rather than being tried again: a full disk fills no faster.
func TestAttachTorn(t *testing.T) {
	s := newConversing()
	s.addJob("talk", job.Dispatched, 3)
	p, ended := s.open(t, "talk", false)
	p.await(t, "talk says 3")
	p.mu.Lock()
	p.torn = errors.New("no space left")
	p.mu.Unlock()
	s.mu.Lock()
	s.happens("talk", "more", talkNoon)
	s.mu.Unlock()
	if _, err := ended(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("it ends with %v", err)
	}
}

// The same line answers at a terminal and is a message elsewhere.
func TestAttachAnswers(t *testing.T) {
	for _, person := range []bool{true, false} {
		s := newConversing()
		s.addJob("talk", job.Dispatched, 1)
		s.questions["talk"] = []api.Question{{Number: 1, Job: "talk", Text: "may I?", Decisions: []string{api.Allow, api.Deny}, State: api.QuestionOpen, Waits: true, AskedAt: talkNoon}}
		s.tell = func(ref string, in api.Say) (api.Said, int) {
			return api.Said{Message: api.Message{Number: 1, Job: "talk", Text: in.Text}, Note: "it was told"}, 0
		}
		p, left := s.sit(t, "talk", person)
		p.await(t, "asks 1")
		if person {
			// What was written before it was asked, while all of it was shown, answers nothing.
			p.written <- terminal.Written{Text: "yes", Asks: "talk/7"}
			p.await(t, "question 1 was not asked yet")
		}
		p.written <- terminal.Written{Text: "No, use make", Asks: "talk/1"}
		if !person {
			p.await(t, "(it was told)")
			p.written <- terminal.Written{Text: "/answer 1 No, use make"}
		}
		p.await(t, "(question 1: it was given to the agent)")
		if !person {
			s.mu.Lock()
			s.jobs["talk"].Job.State = job.Completed // without a terminal it is over then
			s.mu.Unlock()
		}
		left()
		if told := len(s.told); (told == 1) == person {
			t.Errorf("person %v: it was told %d messages", person, told)
		}
		if len(s.answered) != 1 || s.answered[0].Decision != api.Deny || s.answered[0].Text != "use make" || s.answered[0].By != "ann" {
			t.Errorf("person %v: it was answered %+v", person, s.answered)
		}
	}
}

func TestAnswerOfLine(t *testing.T) {
	asks := &api.Question{Decisions: []string{api.Allow}}
	for line, want := range map[string]api.AnswerQuestion{
		"yes":                     {Decision: api.Allow},
		"Yes, go on":              {Decision: api.Allow, Text: "go on"},
		"no: use make":            {Decision: api.Deny, Text: "use make"},
		"stop here":               {Decision: api.DenyAndStop, Text: "here"},
		"always":                  {Decision: api.Allow, Scope: api.GrantJob},
		"always npm test *":       {Decision: api.Allow, Scope: api.GrantJob, Pattern: "npm test *"},
		"always tenant":           {Decision: api.Allow, Scope: api.GrantTenant},
		"always tenant  npm test": {Decision: api.Allow, Scope: api.GrantTenant, Pattern: "npm test"},
	} {
		if got, ok := answerOfLine(asks, line); !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q answers %+v, want %+v", line, got, want)
		}
	}
	for _, line := range []string{"maybe", "yesterday it worked", "not yet"} {
		if in, ok := answerOfLine(asks, line); ok {
			t.Errorf("%q answers %+v", line, in)
		}
	}
	if in, ok := answerOfLine(&api.Question{}, "the second"); !ok || in.Text != "the second" || in.Decision != "" {
		t.Errorf("words answer %+v, %v", in, ok)
	}
	if _, ok := answerOfLine(nil, "yes"); ok {
		t.Error("yes answers although nothing is asked")
	}
}
