package opencode

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// session is one run of opencode. It talks with the program's server through a relay, whose lines are requests, answers
// and events: see package relay.
//
// The program works on a session of its own, the thread main, and on one for each subagent. A turn begins with a prompt and
// ends when the program says that the session is idle.
type session struct {
	agentcli.Run
	setup

	session string // the program's id; "" until it is open
	main    *thread
	threads map[string]*thread // by id, main included
	calls   map[string]*call   // that have not ended, by the ids of their parts

	requests int
	answers  map[int]func(answer) // what the answer to a request is for

	prompts     []*prompt // that no turn has read yet, in order
	began       bool      // the program has the first prompt: what it said before is of earlier runs
	idle        bool
	resent      int
	interrupted bool
	closed      bool // the end of the input was written

	asked []*request // that wait for an answer, in order

	finish  string // why the last step of main ended, e.g. "stop"
	message string // id of the message that answer belongs to
	answer  string
	failure *failure // the last, if nothing came after it
	denied  []string

	events []job.Event // of this step
	out    []worker.Action
}

// setup is what the run's requests are made of.
type setup struct {
	title string
	model *modelName // nil: the program's own default
	text  string     // of the job's own prompt
	name  string     // that no other prompt of the session has
	fork  bool       // Resume is another job's session
}

// modelName is a model as requests have it.
type modelName struct {
	Provider string `json:"providerID"`
	Model    string `json:"modelID"`
}

// thread is a session of the program's.
type thread struct {
	id         string
	parent     string // call id of the tool call that it works for; "" for main
	message    string // the assistant's last message
	compacting bool   // it is a summary of what came before
	open       bool   // the message has not ended
	step       bool   // a step was started and not finished
	tries      int    // steps begun since one was finished
	overflows  int    // messages in a row that did not fit into the model's context
}

func newSession(t *worker.Task, h home) *session {
	s := &session{
		Run: agentcli.NewRun(t, "session", h.hasSession), setup: newSetup(t, h),
		threads: map[string]*thread{}, calls: map[string]*call{}, answers: map[int]func(answer){},
	}
	s.prompts = []*prompt{{text: s.text, name: s.name}}
	return s
}

// Names of timers.
const (
	quiet     = "quiet"     // the session is idle, and yet not all is done
	rejecting = "rejecting" // refusals wait for questions of the same step
)

// Step reads what the relay prints and takes what others have for the program.
func (s *session) Step(now time.Time, in worker.Input) []worker.Action {
	s.Now, s.events, s.out = now, nil, nil
	switch in := in.(type) {
	case worker.Started:
		s.start()
	case worker.Message:
		s.tell(in)
	case worker.Answer:
		s.take(in)
	case worker.Interrupt:
		s.interrupt()
	case worker.Timer:
		switch in.Name {
		case quiet:
			s.stillIdle()
		case rejecting:
			s.reject()
		}
	case worker.Cancel:
		s.abort()
		s.close()
	}
	actions := s.Read(now, in, s.line, s.errorLine, s.result)
	actions = append(actions, worker.Events(s.events...)...)
	return append(actions, s.out...)
}

func (s *session) emit(e job.Event) { s.events = append(s.events, e) }

func (s *session) do(a worker.Action) { s.out = append(s.out, a) }

// answer is one to a request.
type answer struct {
	Status int // 0: there is none
	Body   json.RawMessage
	Error  string
}

// ok reports whether the program did as it was asked.
func (a answer) ok() bool { return a.Status >= 200 && a.Status < 300 }

// failure is what is said of an answer that is not ok.
func (a answer) failure() *failure {
	f := &failure{}
	agentcli.Decode(a.Body, f)
	if f.Name == "" && f.Data.Message == "" {
		f.Data.Message, _ = job.Cut("opencode's server refused a request: "+a.Error+string(a.Body), agentcli.MaxMessage)
	}
	return f
}

// ask makes a request. then, if it is not nil, is called with the answer.
func (s *session) ask(method, path string, body any, then func(answer)) {
	s.requests++
	if then != nil {
		s.answers[s.requests] = then
	}
	s.do(worker.Write{Data: encode(map[string]any{"id": s.requests, "method": method, "path": path, "body": body})})
}

// start opens the session.
func (s *session) start() {
	opened := func(a answer) {
		var created struct{ ID, Version string }
		agentcli.Decode(a.Body, &created)
		if !a.ok() || created.ID == "" {
			s.fail(a.failure())
			return
		}
		for _, e := range s.RunsOn(Adapter{}.Package(), created.Version) {
			s.emit(e)
		}
		if !s.Decided() {
			s.open(created.ID)
		}
	}
	switch {
	case s.Resume == "":
		s.ask("POST", "/session", map[string]any{"title": s.title}, opened)
	case s.fork:
		s.ask("POST", sessionPath(s.Resume, "fork"), map[string]any{}, opened)
	default:
		s.open(s.Resume)
	}
}

func (s *session) open(id string) {
	s.session = id
	s.main = &thread{id: id}
	s.threads[id] = s.main
	s.emit(job.Event{Kind: job.EventSession, Session: id})
	if s.interrupted {
		s.turnOver()
		return
	}
	s.send()
}

// fail ends the program for a failure.
func (s *session) fail(f *failure) {
	s.failure = f
	s.emit(agentcli.WithText(job.Event{Kind: job.EventError}, f.String()))
	s.close()
}

// close ends the program. What it was not told is refused.
func (s *session) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.withdraw()
	for _, p := range s.prompts {
		if !p.sent {
			s.settle(p, worker.MessageRefused, ending)
		}
	}
	s.do(worker.CloseInput{})
}

// ending is why a message is refused.
const ending = "opencode is ending"
