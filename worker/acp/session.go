package acp

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// What an agent can make us keep by inventing ids.
const (
	maxCalls = 1000 // tool calls that have not ended, paths, kinds of warnings
	maxOpen  = 100  // requests of its own that have no answer yet
)

// session is one run of one agent. Its parts are methods in files of their own: open.go
// (up to the first prompt), turn.go (prompts, and how the run ends), update.go and call.go
// (what the agent tells), ask.go and file.go (what it asks for).
//
//	opening ── prompt ──► turn ── answered ──► settling ── settle ──► ending
//	                       ▲                      │ messages wait        │ standard input closed
//	                       └──────────────────────┘                      ▼
//	                                                                   Ended
type session struct {
	agentcli.Run
	task *worker.Task
	out  []worker.Action // of the step that is being taken

	last    int64                 // id of our last request
	pending map[int64]func(reply) // what follows from the answers to our requests
	warned  map[string]bool

	agent     initialized
	id        acp.SessionId // "" while there is none
	authTried bool
	replaying bool              // what comes is the history of the session that is loaded
	history   map[[32]byte]bool // hashes of what the user has said in it

	phase   phase
	queue   []worker.Message // that have no turn yet, in order
	why     []string         // what to tell it about what was denied, for which the protocol has no words
	told    []string         // ids of those that begin the running turn and are not folded yet
	stopped stopReason       // of the last turn
	stop    stopCause        // why the running turn was asked to stop
	denied  []string
	verdict *worker.Result // that decided the run before its end

	words   message // what is being said
	thought message
	answer  string
	named   bool // the answer was a message with an id
	plan    string

	calls map[string]*call
	asks  map[string]*ask         // questions that are open
	files map[string]*fileRequest // that are being read or written
	asked int                     // makes ids of both
	// questions are the ids of those that were asked.
	questions map[string]bool
	// mayWrite are paths that a person has let the agent write, once each; wrote those of
	// which an event was told when we wrote them.
	mayWrite, wrote map[string]bool

	used turnUsage
	cost *float64 // the agent's total, US dollars
}

type phase int

const (
	opening  phase = iota // there is no turn yet
	turning               // a prompt has no answer yet
	settling              // what is late of a turn is waited for
	ending                // the agent is to end
)

type stopCause int

const (
	notStopped stopCause = iota
	interrupted
	deniedAndStopped
	cancelled
)

const (
	// settleTime is how long updates are waited for that come after the answer to a
	// prompt: agents send them by ways that keep no order.
	settleTime = 200 * time.Millisecond
	// startTime is how long an agent may take to answer initialize.
	startTime = 2 * time.Minute
	// endTime is after how long it is told that an agent does not end at the end of its input.
	endTime = 10 * time.Second
)

// Step is worker.Session's.
func (s *session) Step(now time.Time, in worker.Input) []worker.Action {
	s.Now, s.out = now, nil
	switch in := in.(type) {
	case worker.Started:
		s.do(worker.SetTimer{Name: "start", After: startTime})
	case worker.Output:
		s.line(in.Line)
	case worker.ErrorOutput:
		return worker.Log(in.Line)
	case worker.Message:
		s.message(in)
	case worker.Answer:
		s.answered(in)
	case worker.FileDone:
		s.fileDone(in)
	case worker.Timer:
		s.timer(in.Name)
	case worker.Interrupt:
		s.interrupt()
	case worker.Cancel:
		s.cancel()
	case worker.Ended:
		s.ended(in.Exit)
	}
	return s.out
}

func (s *session) do(actions ...worker.Action) { s.out = append(s.out, actions...) }

func (s *session) emit(e job.Event) { s.do(worker.Emit{Event: e}) }

// say emits text of any length as an event of this kind.
func (s *session) say(kind job.EventKind, text string) {
	if text != "" {
		s.emit(agentcli.WithText(job.Event{Kind: kind}, text))
	}
}

// warn warns the first time that it is called with this key.
func (s *session) warn(key, format string, args ...any) {
	if !s.warned[key] && len(s.warned) < maxCalls {
		s.warned[key] = true
		s.say(job.EventWarning, fmt.Sprintf(format, args...))
	}
}

// fail decides the run, whose agent is stopped then. The first failure counts.
func (s *session) fail(r worker.Result) {
	if s.verdict != nil {
		return
	}
	r.Message, _ = job.Cut(r.Message, agentcli.MaxMessage)
	r.Hint, _ = job.Cut(r.Hint, agentcli.MaxMessage)
	s.verdict, s.phase = &r, ending
	s.do(worker.Finish{Result: r})
}

func (s *session) timer(name string) {
	switch name {
	case "start":
		if s.agent.ProtocolVersion == 0 {
			s.fail(worker.Result{Class: job.Config, Message: fmt.Sprintf("the agent did not answer within %s", startTime),
				Hint: "check that the worker's command starts an agent that speaks ACP on its standard input, such as [gemini, --acp]"})
		}
	case "settle":
		if s.phase == settling {
			s.settled()
		}
	case "end":
		s.warn("end", "the agent does not end although its standard input did")
	}
}

// reply is an answer to a request.
type reply struct {
	result json.RawMessage
	err    *rpcError // nil: there is a result
}

type rpcError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error codes of JSON-RPC and of the protocol.
const (
	codeInvalidParams    = -32602
	codeMethodNotFound   = -32601
	codeInternal         = -32603
	codeAuthRequired     = -32000
	codeResourceNotFound = -32002
)

// line reads a message of the agent.
func (s *session) line(line []byte) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
		Result json.RawMessage
		Error  *rpcError
	}
	if len(line) == 0 || line[0] != '{' || !agentcli.Decode(line, &m) {
		s.do(worker.Log(line)...)
		return
	}
	switch {
	case m.Method != "" && plainID(m.ID):
		s.request(m.ID, m.Method, m.Params)
	case m.Method != "":
		if m.Method == acp.ClientMethodSessionUpdate {
			s.update(m.Params)
		}
	case plainID(m.ID):
		var id int64
		if json.Unmarshal(m.ID, &id) != nil {
			return
		}
		if then := s.pending[id]; then != nil {
			delete(s.pending, id)
			then(reply{m.Result, m.Error})
		}
	}
}

// plainID reports whether an id is a number or a short string.
func plainID(id json.RawMessage) bool {
	return len(id) > 0 && len(id) <= 200 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// request does what the agent asks for. Methods of vendors are not known here, with or
// without the underscore that the protocol wants of them.
func (s *session) request(id json.RawMessage, method string, params json.RawMessage) {
	if len(s.asks)+len(s.files) >= maxOpen {
		s.refuse(id, codeInternal, "too many requests are open")
		return
	}
	switch method {
	case acp.ClientMethodSessionRequestPermission:
		s.permission(id, params)
	case acp.ClientMethodElicitationCreate:
		s.elicit(id, params)
	case acp.ClientMethodFsReadTextFile:
		s.readFile(id, params)
	case acp.ClientMethodFsWriteTextFile:
		s.writeFile(id, params)
	default:
		s.refuse(id, codeMethodNotFound, "method not found")
	}
}

// maxFrame is the longest message that is written, in bytes: the driver keeps at most
// 4 MiB for a program that does not read.
const maxFrame = 3 << 20

// call asks the agent for something; then is called with its answer.
func (s *session) call(method string, params any, then func(reply)) {
	s.last++
	s.pending[s.last] = then
	if !s.write(map[string]any{"jsonrpc": "2.0", "id": s.last, "method": method, "params": params}) {
		s.fail(worker.Result{Class: job.Config, Message: fmt.Sprintf("what the agent is to be told has more than %d bytes", maxFrame),
			Hint: "put long texts into files of the workspace"})
	}
}

func (s *session) notify(method string, params any) {
	s.write(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

// grant answers a request of the agent.
func (s *session) grant(id json.RawMessage, result any) {
	if !s.write(map[string]any{"jsonrpc": "2.0", "id": id, "result": result}) {
		s.refuse(id, codeInternal, fmt.Sprintf("the answer has more than %d bytes", maxFrame))
	}
}

// refuse answers a request of the agent with an error.
func (s *session) refuse(id json.RawMessage, code int64, message string) {
	s.write(map[string]any{"jsonrpc": "2.0", "id": id, "error": rpcError{Code: code, Message: message}})
}

// write writes a message, unless it is too long.
func (s *session) write(m any) bool {
	data, err := json.Marshal(m)
	if err != nil { // never: structs of the SDK, and JSON that was read
		s.warn("marshal", "a message to the agent was lost: %v", err)
		return true
	}
	if len(data) >= maxFrame {
		return false
	}
	s.do(worker.Write{Data: append(data, '\n')})
	return true
}
