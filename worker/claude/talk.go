package claude

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/worker"
)

// The program is talked to by frames, one JSON object a line in each direction. A user
// frame that comes while a turn runs is read at the next boundary of a tool, else it
// begins the next turn: the program replays it when it stands in a turn. There is one
// result for each turn, and several messages may share one. The program ends when its
// input does.

const (
	// stopTime is how long a turn has to stop after it was interrupted: 2.1.197 stops a
	// command at once, other versions wait for its end.
	stopTime = 10 * time.Second
	// turnTime is how long a turn may take to begin for messages that the program has.
	turnTime = 30 * time.Second
	// maxMessage is the longest frame of a message, in bytes.
	maxMessage = 1 << 20

	stopTimer, turnTimer = "stop", "turn"
)

// talk is what a session knows of its conversation.
type talk struct {
	asked    map[string]asked // questions without an answer, by the program's id
	has      map[string]bool  // uuids of messages that stand in the session already
	waiting  []waiting        // messages that stand in no turn yet
	closed   bool             // the input has ended
	running  bool             // a turn has begun, and not ended
	stopping string           // why the running turn is to stop; "" if it is not
	requests int              // control requests sent
	todo     []worker.Action  // of the input that is being read
}

// waiting is a message that the program has, and that stands in no turn yet.
type waiting struct{ id, uuid string }

type object map[string]any

// opening is what the program is told first: the handshake and the prompt.
func opening(instructions string) []byte {
	hello := frame(object{"type": "control_request", "request_id": "initialize", "request": object{"subtype": "initialize"}})
	return append(hello, frame(user(instructions, ""))...)
}

func frame(v object) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, and JSON that was decoded
	}
	return append(data, '\n')
}

func user(text, uuid string) object {
	o := object{"type": "user", "message": object{"role": "user", "content": []object{{"type": "text", "text": prompt(text)}}}}
	if uuid != "" {
		o["uuid"] = uuid
	}
	return o
}

func (t *talk) do(a worker.Action) { t.todo = append(t.todo, a) }
func (t *talk) write(frame []byte) { t.do(worker.Write{Data: frame}) }
func (t *talk) timer(name string, after time.Duration) {
	t.do(worker.SetTimer{Name: name, After: after})
}

// hear takes an input that others have for the program.
func (s *session) hear(in worker.Input) {
	switch in := in.(type) {
	case worker.Message:
		s.message(in)
	case worker.Answer:
		s.answered(in)
	case worker.Interrupt:
		if !s.closed {
			s.stop("interrupted")
			s.interrupt()
		}
	case worker.Timer:
		s.timeOver(in.Name)
	case worker.Cancel:
		s.interrupt()
		s.close()
	}
}

// message passes words on. Those that an earlier attempt has put into the session are
// not said again: the program would swallow them without a turn.
func (s *session) message(m worker.Message) {
	w := waiting{m.ID, uuidOf(m.ID)}
	data := frame(user(m.Text, w.uuid))
	switch {
	case s.has[w.uuid]:
		s.do(worker.Settle{Message: m.ID, State: worker.MessageFolded})
	case s.closed:
		s.do(worker.Settle{Message: m.ID, State: worker.MessageRefused, Reason: "claude is ending"})
	case len(data) > maxMessage:
		s.do(worker.Settle{Message: m.ID, State: worker.MessageRefused,
			Reason: fmt.Sprintf("the message is too long: claude is told at most %d bytes at once", maxMessage)})
	default:
		s.waiting = append(s.waiting, w)
		s.write(data)
		s.do(worker.Settle{Message: m.ID, State: worker.MessageDelivered})
	}
}

// uuidOf returns the name of a message in the program's session. It is of version 8,
// which nobody else makes there (see recorded).
func uuidOf(message string) string {
	sum := sha256.Sum256([]byte(message))
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func ours(uuid string) bool { return len(uuid) == 36 && uuid[14] == '8' }

// replayed notes that a message stands in a turn, and all that came before it with it.
func (s *session) replayed(uuid string) {
	i := slices.IndexFunc(s.waiting, func(w waiting) bool { return w.uuid == uuid })
	for _, w := range s.waiting[:i+1] {
		s.do(worker.Settle{Message: w.id, State: worker.MessageFolded})
	}
	s.waiting = s.waiting[i+1:]
}

// turnBegins follows the first line of each turn.
func (s *session) turnBegins() {
	s.running = true
	if s.stopping != "" {
		s.interrupt() // the first came between two turns, when there was nothing to stop
	}
}

// turnEnds follows the result of each turn.
func (s *session) turnEnds(l *line) {
	s.running = false
	for _, request := range slices.Sorted(maps.Keys(s.asked)) {
		s.withdrawn(request) // some versions do not say so
	}
	switch {
	case len(s.waiting) > 0:
		s.timer(turnTimer, turnTime)
	case s.stopping != "" && l.aborted():
		s.checkpoint()
	default:
		s.close()
	}
	if s.stopping != "" {
		s.stopping = ""
		s.timer(stopTimer, 0)
	}
}

// aborted reports whether a turn was stopped before its end.
func (l *line) aborted() bool {
	return l.Subtype == "error_during_execution" && (l.Reason == "" || strings.HasPrefix(l.Reason, "aborted"))
}

// stop notes that the running turn is to stop, and when it is stopped by force.
func (s *session) stop(reason string) {
	s.stopping = reason
	s.timer(stopTimer, stopTime)
}

func (s *session) timeOver(name string) {
	switch {
	case name == turnTimer && !s.running:
		s.close() // it reads what it has, and ends
	case name == stopTimer && s.stopping != "":
		s.checkpoint()
	}
}

// checkpoint ends the run at a turn that was interrupted. It does so by force: the
// program's exit code would be that of a turn that failed.
func (s *session) checkpoint() {
	s.do(worker.Finish{Result: worker.Result{Checkpointed: true, Message: s.stopping, Answer: s.answer, CostUSD: s.cost, Denied: s.denied}})
}

func (s *session) interrupt() {
	if s.closed {
		return
	}
	s.requests++
	s.write(frame(object{"type": "control_request", "request_id": fmt.Sprintf("interrupt-%d", s.requests), "request": object{"subtype": "interrupt"}}))
}

func (s *session) close() {
	if !s.closed {
		s.closed = true
		s.do(worker.CloseInput{})
	}
}
