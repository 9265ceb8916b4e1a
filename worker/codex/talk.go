package codex

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// A run is a handshake, a thread that is started, resumed or copied, and one turn after the
// other: the first has the instructions, and each other one a message that came too late for
// the turn before. A message that comes in time is put into the running turn, one at a time, so
// that their order is kept. The program ends when its input does.

const (
	// maxMessage bounds a message, and maxTurn what begins the first turn, in bytes of a line.
	maxMessage = 1 << 20
	maxTurn    = 4<<20 - 64<<10 // a program is told no line of more than 4 MiB
	// pageSize and maxPages bound what is looked through of a resumed thread.
	pageSize, maxPages = 100, 20
)

// talk is what a session knows of its conversation.
type talk struct {
	opening   opening
	requests  int64               // id of the last request
	calls     map[int64]string    // methods of requests without an answer
	thread    string              // "" until the program has told it
	turn      string              // the running one
	starting  bool                // turn/start has no answer yet
	steering  bool                // turn/steer has no answer yet
	passing   *worker.Message     // what one of them passes on; nil if it stands in the turn already
	sent      []worker.Message    // delivered, and not in a turn yet
	waiting   []worker.Message    // to be passed on
	refuses   bool                // the running turn takes no words
	stopping  string              // why the running turn is to stop; "" if it is not
	told      bool                // it was told to
	stopped   string              // why the last turn was stopped before its end
	begun     bool                // the first turn was asked for
	ended     string              // the last turn that has ended
	cancelled bool                // the run is being stopped
	closed    bool                // the input has ended
	questions []*question         // without an answer
	changes   map[string][]change // of file changes that have begun, by their item
	history   map[string]bool     // messages that stand in the resumed thread
	recall    []string            // those that were found so far
	looked    int                 // pages of it
	todo      []worker.Action     // of the input that is being read
}

// notePrefix begins the ids of words of our own, which nobody waits for: see sayWhy.
const notePrefix = "why:"

func isNote(m worker.Message) bool { return strings.HasPrefix(m.ID, notePrefix) }

// opening is what begins the run.
type opening struct {
	thread request
	text   string
	schema json.RawMessage
}

func (t *talk) do(a ...worker.Action) { t.todo = append(t.todo, a...) }
func (t *talk) emit(e ...job.Event)   { t.do(worker.Events(e...)...) }
func (t *talk) write(v any)           { t.do(worker.Write{Data: frame(v)}) }
func (t *talk) settle(m worker.Message, state worker.MessageState, reason string) {
	if isNote(m) {
		return
	}
	t.do(worker.Settle{Message: m.ID, State: state, Reason: reason})
}

// call sends a request.
func (t *talk) call(method string, params any) {
	t.requests++
	t.calls[t.requests] = method
	t.write(request{ID: t.requests, Method: method, Params: params})
}

// hear takes an input that others have for the program.
func (s *session) hear(in worker.Input) {
	switch in := in.(type) {
	case worker.Started:
		s.call("initialize", helloParams{clientInfo{"agentsched", "agentsched", "0"}, capabilities{OptOut: unread}})
	case worker.Message:
		s.message(in)
	case worker.Answer:
		s.answered(in)
	case worker.Interrupt:
		s.stop("interrupted")
	case worker.Cancel:
		s.cancel()
	case worker.Ended:
		s.refuse("codex has ended")
	}
}

// answer reads the answer to a request of ours.
func (s *session) response(l *line) {
	id, _ := strconv.ParseInt(string(l.ID), 10, 64)
	method := s.calls[id]
	delete(s.calls, id)
	switch {
	case id == helloID:
		s.hello(l)
	case id == threadID:
		s.threadReady(l)
	case method == "turn/start":
		s.turnStarted(l)
	case method == "turn/steer":
		s.steered(l)
	case method == "thread/items/list":
		s.recalled(l)
	}
}

var agentVersion = regexp.MustCompile(`^[^/ ]*/([^ ]+)`)

// hello follows the handshake.
func (s *session) hello(l *line) {
	if l.Error != nil {
		s.failed(l.Error.Message)
		s.close("codex is ending")
		return
	}
	if m := agentVersion.FindStringSubmatch(l.Result.UserAgent); m != nil {
		for _, e := range s.RunsOn(Adapter{}.Package(), m[1]) {
			s.emit(e)
		}
		if s.Decided() {
			return
		}
	}
	s.write(request{Method: "initialized"})
	s.call(s.opening.thread.Method, s.opening.thread.Params)
}

// threadReady begins the first turn.
func (s *session) threadReady(l *line) {
	if l.Error != nil || l.Result.Thread.ID == "" {
		message := "codex has started no thread"
		if l.Error != nil {
			message = l.Error.Message
		}
		s.failed(message)
		s.close("codex is ending")
		return
	}
	s.thread = l.Result.Thread.ID
	s.emit(job.Event{Kind: job.EventSession, Session: s.thread})
	s.begin(s.opening.text, "")
	s.pump()
}

// begin starts a turn.
func (s *session) begin(text, message string) {
	s.begun, s.starting, s.refuses, s.told, s.stopped = true, true, false, false, ""
	s.completed, s.failure = false, ""
	s.call("turn/start", turnParams{ThreadID: s.thread, Input: words(text), ClientID: message, Schema: s.opening.schema})
}

func words(text string) []inputText { return []inputText{{Type: "text", Text: text}} }

func (s *session) turnStarted(l *line) {
	s.starting = false
	m := s.passing
	s.passing = nil
	switch {
	case l.Error == nil:
		if id := l.Result.Turn.ID; id != s.ended {
			s.turn = id
		}
		if m != nil {
			s.settle(*m, worker.MessageDelivered, "")
			s.sent = append(s.sent, *m)
		}
		s.interrupt()
		s.pump()
	case m != nil:
		s.settle(*m, worker.MessageRefused, l.Error.Message)
		s.completed = true // as the turn before was
		s.rest()
	default:
		s.failed(l.Error.Message)
		s.close("codex is ending")
	}
}

// message takes words for the agent.
func (s *session) message(m worker.Message) {
	switch {
	case s.closed || s.cancelled:
		s.settle(m, worker.MessageRefused, "codex is ending")
	case len(frame(m.Text)) > maxMessage || utf8.RuneCountInString(m.Text) > maxPrompt:
		s.settle(m, worker.MessageRefused, fmt.Sprintf("the message is too long: codex is told at most %d bytes at once", maxMessage))
	default:
		s.waiting = append(s.waiting, m)
		s.pump()
	}
}

// pump passes on what can be passed on.
func (s *session) pump() {
	for len(s.waiting) > 0 && s.thread != "" && !s.busy() {
		m := s.waiting[0]
		if m.Again && s.opening.thread.Method == "thread/resume" {
			if s.history == nil {
				s.look("")
				return
			}
			if s.history[m.ID] {
				s.waiting = s.waiting[1:]
				s.settle(m, worker.MessageFolded, "")
				continue
			}
		}
		if s.turn != "" && (s.refuses || s.stopping != "") {
			return
		}
		s.waiting, s.passing = s.waiting[1:], &m
		if s.turn == "" {
			s.begin(m.Text, m.ID)
			return
		}
		s.steering = true
		s.call("turn/steer", turnParams{ThreadID: s.thread, ExpectedTurn: s.turn, Input: words(m.Text), ClientID: m.ID})
	}
}

// busy reports whether an answer is waited for before anything else is passed on.
func (s *session) busy() bool { return s.closed || s.starting || s.steering || s.looking() }

// steered reads what became of words for the running turn. Where it takes none (it is over, or
// it is a review or a compaction), they begin the next one.
func (s *session) steered(l *line) {
	s.steering = false
	m := s.passing
	s.passing = nil
	switch {
	case m == nil: // it stands in the turn already
	case l.Error == nil && s.turn != "":
		s.settle(*m, worker.MessageDelivered, "")
		s.sent = append(s.sent, *m)
	default:
		s.waiting = slices.Insert(s.waiting, 0, *m)
		s.refuses = true
	}
	if s.turn == "" {
		s.rest()
		return
	}
	s.pump()
}

// folded notes that a message stands in a turn.
func (s *session) folded(id string) {
	is := func(m worker.Message) bool { return m.ID == id }
	if i := slices.IndexFunc(s.sent, is); i >= 0 {
		s.settle(s.sent[i], worker.MessageFolded, "")
		s.sent = slices.Delete(s.sent, i, i+1)
	} else if s.passing != nil && is(*s.passing) {
		s.settle(*s.passing, worker.MessageFolded, "")
		s.passing = nil
	}
}

// look asks for a page of what stands in the resumed thread.
func (s *session) look(cursor string) {
	s.looked++
	s.call("thread/items/list", itemsParams{ThreadID: s.thread, Cursor: cursor, Limit: pageSize, Sort: "desc"})
}

func (s *session) looking() bool { return s.looked > 0 && s.history == nil }

// recalled reads the page. What cannot be read is not there: words that are said twice do less
// harm than words that are lost.
func (s *session) recalled(l *line) {
	for _, d := range l.Result.Data {
		if d.Item.ClientID != "" {
			s.recall = append(s.recall, d.Item.ClientID)
		}
	}
	if l.Error == nil && l.Result.NextCursor != "" && s.looked < maxPages && len(l.Result.Data) > 0 {
		s.look(l.Result.NextCursor)
		return
	}
	s.history = map[string]bool{}
	for _, id := range s.recall {
		s.history[id] = true
	}
	if s.turn == "" && !s.starting {
		s.rest()
		return
	}
	s.pump()
}

// turnEnds follows the end of each turn.
func (s *session) turnEnds(t turn) {
	stopping := s.stopping
	s.turn, s.ended, s.refuses, s.starting, s.stopping = "", t.ID, false, false, ""
	for _, q := range s.questions {
		s.do(q.withdraw()...)
	}
	s.questions = nil
	clear(s.held)
	clear(s.changes)
	s.waiting = append(s.sent, s.waiting...) // the turn has ended without them
	s.sent = nil
	if s.cancelled {
		s.close(stopsNow)
		return
	}
	switch t.Status {
	case "completed":
		s.completed, s.failure = true, ""
	case "interrupted":
		s.stopped = stopping
		s.waiting = slices.DeleteFunc(s.waiting, isNote)
	default:
		s.failed(t.Error.Message)
		s.close("codex's turn failed")
		return
	}
	s.rest()
}

// rest begins the next turn, or ends the program if there is none.
func (s *session) rest() {
	s.pump()
	if s.turn == "" && len(s.waiting) == 0 && !s.busy() {
		s.close("codex is ending")
	}
}

// stop has the running turn stop, or the one that is being started. Between turns there is
// nothing to stop.
func (s *session) stop(reason string) {
	if s.closed || s.stopping != "" || s.begun && s.turn == "" && !s.starting {
		return
	}
	s.stopping = reason
	s.interrupt()
}

const stopsNow = "codex is being stopped"

// cancel ends the run. A turn is interrupted first: with its end, Codex tells what its last
// call of the model used.
func (s *session) cancel() {
	s.cancelled = true
	if s.stop("cancelled"); s.stopping == "" || !s.told {
		s.close(stopsNow)
	}
}

// interrupt asks the program to stop its turn, once.
func (s *session) interrupt() {
	if s.stopping != "" && s.turn != "" && !s.told {
		s.told = true
		s.call("turn/interrupt", interruptParams{s.thread, s.turn})
	}
}

// close ends the program's input.
func (s *session) close(reason string) {
	if s.closed {
		return
	}
	s.closed = true
	s.refuse(reason)
	s.do(worker.CloseInput{})
}

// refuse gives back what stands in no turn.
func (s *session) refuse(reason string) {
	if s.passing != nil {
		s.sent = append(s.sent, *s.passing)
	}
	for _, m := range append(s.sent, s.waiting...) {
		s.settle(m, worker.MessageRefused, reason)
	}
	s.passing, s.sent, s.waiting = nil, nil, nil
}

// tooLong returns the failure of instructions that cannot be told; nil if they can.
func tooLong(t *worker.Task) error {
	if n := utf8.RuneCountInString(t.Instructions); n > maxPrompt {
		return agentcli.TooLong(program.Name, n, maxPrompt, "characters")
	}
	if n := len(frame(t.Instructions)) + len(t.Output); n > maxTurn {
		return agentcli.TooLong(program.Name, n, maxTurn, "bytes, as JSON")
	}
	return nil
}
