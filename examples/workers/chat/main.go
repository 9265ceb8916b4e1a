// Command chat is an example of a worker that converses (docs/worker-protocol.md),
// with nothing but the standard library and without a model: its instructions are a
// script, one command a line, which it does as an agent would do its work. It asks,
// is told things and can be interrupted, and a resumed session goes on where the last
// attempt was cut. Put your own agent in place of the script, and name the program in
// the settings of a worker of the adapter exec.
//
//	say TEXT               says TEXT
//	ask run COMMAND        asks whether it may run COMMAND, and says the answer; it runs nothing
//	ask read PATH          likewise, as ask write PATH, ask host HOST, ask tool NAME
//	ask words TEXT         asks a person TEXT
//	choose WORD WORD…      asks a person for one of the words
//	write FILE TEXT        writes a file in the workspace; it asks first if the job may not edit
//	usage N                reports N input tokens
//	wait                   waits for a message, and says it, or for an interrupt
//	sleep-until-interrupt  waits for an interrupt; messages wait meanwhile
//
// A message that comes at another time is said before the next line. So each message
// is said once, as "told: TEXT (from WHO)". What a session is told that has ended is its
// script when it goes on; what is no command there is said, too. An empty line and one that begins with #
// do nothing.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// task is the part of a task that this worker needs.
type task struct {
	Type         string   `json:"type"`
	Protocol     int      `json:"protocol"`
	Job          string   `json:"job"`
	Instructions string   `json:"instructions"`
	Session      string   `json:"session"`
	Fork         bool     `json:"fork"`
	Asked        bool     `json:"asked"`
	Dir          string   `json:"dir"`
	Home         string   `json:"home"`
	Capabilities []string `json:"capabilities"`
}

// message is a line of either direction; which fields it has depends on Type.
type message struct {
	Type      string          `json:"type"`
	Protocol  int             `json:"protocol,omitempty"`
	Name      string          `json:"name,omitempty"`
	Converses []string        `json:"converses,omitempty"`
	Session   string          `json:"session,omitempty"`
	ID        string          `json:"id,omitempty"`
	From      string          `json:"from,omitempty"`
	Text      string          `json:"text,omitempty"`
	Again     bool            `json:"again,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Command   string          `json:"command,omitempty"`
	Path      string          `json:"path,omitempty"`
	Host      string          `json:"host,omitempty"`
	Diff      string          `json:"diff,omitempty"`
	Input     any             `json:"input,omitempty"`
	Decisions []string        `json:"decisions,omitempty"`
	Schema    any             `json:"schema,omitempty"`
	Question  string          `json:"question,omitempty"`
	Decision  string          `json:"decision,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	Message   string          `json:"message,omitempty"`
	State     string          `json:"state,omitempty"`
	Change    string          `json:"change,omitempty"`
	Tokens    int64           `json:"input_tokens,omitempty"`
	Status    string          `json:"status,omitempty"`
	Class     string          `json:"class,omitempty"`
	Reason    string          `json:"reason,omitempty"`
}

// end is the error that the run ends with this result.
type end struct{ result message }

func (e *end) Error() string { return e.result.Message }

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chat worker:", err)
		os.Exit(1)
	}
}

// run does the one task that it is given on stdin. The error is about the
// protocol; a task that fails is a result like another.
func run(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	var t task
	if err := json.Unmarshal(line, &t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	out := json.NewEncoder(stdout) // one line a value, and no buffer to flush
	hello := message{Type: "hello", Protocol: 1, Name: "chat", Converses: []string{"messages", "questions", "interrupts"}}
	if err := out.Encode(hello); err != nil {
		return err
	}
	if t.Type != "task" || t.Protocol != 1 {
		return out.Encode(failed("CONFIG", "I speak version 1 of the worker protocol").result)
	}
	c := &chat{task: t, in: make(chan message), out: out, asks: map[int]int{}}
	go c.listen(in) // until the process ends
	err = c.work()
	var e *end
	switch {
	case errors.As(err, &e):
		return out.Encode(e.result)
	case err != nil:
		return out.Encode(failed("UNKNOWN", err.Error()).result)
	}
	return out.Encode(message{Type: "result", Status: "completed"}) // the last text is the answer
}

// chat is one run of a session.
type chat struct {
	task  task
	in    chan message // what the scheduler says; closed when it is gone
	out   *json.Encoder
	inbox []message   // messages and interrupts for which there was no time yet, in order
	asks  map[int]int // how often a line has asked in this run

	memory
}

func (c *chat) listen(in *bufio.Reader) {
	defer close(c.in)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line, &m) == nil {
			c.in <- m
		}
	}
}

// work does the script from where the session stands.
func (c *chat) work() error {
	if err := c.remember(); err != nil {
		return err
	}
	if err := c.print(message{Type: "session", Session: c.Session}); err != nil {
		return err
	}
	for c.Next < len(c.Script) {
		line := strings.TrimSpace(c.Script[c.Next])
		if err := c.catchUp(waits(line)); err != nil {
			return err
		}
		if err := c.do(line); err != nil {
			return err
		}
	}
	return c.catchUp(false)
}

// waits reports whether a line is for what comes in the meantime.
func waits(line string) bool { return line == "wait" || line == "sleep-until-interrupt" }

// known reports whether a line is a command.
func known(line string) bool {
	verb, _, _ := strings.Cut(line, " ")
	return line == "" || waits(line) || strings.HasPrefix(line, "#") || slices.Contains([]string{"say", "ask", "choose", "write", "usage"}, verb)
}

// do does a line, or a part of it if it is cut. The session stands behind the line
// when what the line says is printed, so that nothing is said twice.
func (c *chat) do(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	switch rest = strings.TrimSpace(rest); {
	case line == "", strings.HasPrefix(line, "#"):
		return c.pass()
	case verb == "say":
		return c.say(rest)
	case verb == "ask", verb == "choose":
		return c.ask(line)
	case verb == "write":
		return c.write(rest)
	case verb == "usage":
		return c.use(rest)
	case line == "wait":
		return c.wait(true)
	case line == "sleep-until-interrupt":
		return c.wait(false)
	}
	return failed("CONFIG", fmt.Sprintf("line %d of the script is %q, which is no command", c.Next+1, line))
}

// say says something as the last thing of a line.
func (c *chat) say(text string) error {
	if err := c.pass(); err != nil {
		return err
	}
	return c.print(message{Type: "text", Text: text})
}

// use reports tokens.
func (c *chat) use(rest string) error {
	var n int64
	if _, err := fmt.Sscanf(rest, "%d", &n); err != nil || n < 0 {
		return failed("CONFIG", fmt.Sprintf("usage %q: want a number of tokens", rest))
	}
	if err := c.pass(); err != nil {
		return err
	}
	return c.print(message{Type: "usage", Tokens: n})
}

// wait waits for an interrupt, or also for a message, and does what it is for.
func (c *chat) wait(messages bool) error {
	for {
		if m, ok := c.pick(messages); ok {
			c.Next++ // kept with what follows
			return c.heed(m)
		}
		m, open := <-c.in
		if err := c.take(m, open); err != nil {
			return err
		}
	}
}

// catchUp takes what has come in the meantime, and heeds it unless the next line waits
// for it.
func (c *chat) catchUp(later bool) error {
	for more := true; more; {
		select {
		case m, open := <-c.in:
			if more = open; !more {
				break
			}
			if err := c.take(m, open); err != nil {
				return err
			}
		default:
			more = false
		}
	}
	for !later {
		m, ok := c.pick(true)
		if !ok {
			break
		}
		if err := c.heed(m); err != nil {
			return err
		}
	}
	return nil
}

// pick takes an interrupt out of the inbox, else the first message if those are wanted.
func (c *chat) pick(messages bool) (message, bool) {
	i := slices.IndexFunc(c.inbox, func(m message) bool { return m.Type == "interrupt" })
	if i < 0 && messages && len(c.inbox) > 0 {
		i = 0
	}
	if i < 0 {
		return message{}, false
	}
	m := c.inbox[i]
	c.inbox = slices.Delete(c.inbox, i, i+1)
	return m, true
}

func (c *chat) heed(m message) error {
	if m.Type == "interrupt" {
		return c.interrupted(m)
	}
	return c.tell(m)
}

// take sorts what the scheduler says. The error ends the run.
func (c *chat) take(m message, open bool) error {
	switch {
	case !open:
		return failed("UNKNOWN", "the scheduler is gone")
	case m.Type == "cancel":
		return failed("UNKNOWN", "asked to stop")
	case m.Type == "checkpoint":
		return checkpointed(m.Reason)
	case m.Type == "interrupt":
		c.inbox = append(c.inbox, m)
	case m.Type == "message":
		c.inbox = append(c.inbox, m)
		return c.print(message{Type: "settle", Message: m.ID, State: "delivered"})
	}
	return nil
}

// tell says a message, unless the session has had it.
func (c *chat) tell(m message) error {
	had := slices.Contains(c.Had, m.ID)
	if !had {
		c.Had = append(c.Had, m.ID)
	}
	if err := c.save(); err != nil {
		return err
	}
	if !had {
		text := "told: " + m.Text
		if m.From != "" {
			text += " (from " + m.From + ")"
		}
		if err := c.print(message{Type: "text", Text: text}); err != nil {
			return err
		}
	}
	return c.print(message{Type: "settle", Message: m.ID, State: "folded"})
}

// interrupted ends the run, or has it go on with the messages that wait.
func (c *chat) interrupted(m message) error {
	if err := c.save(); err != nil {
		return err
	}
	text := "interrupted"
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	if err := c.print(message{Type: "text", Text: text}); err != nil {
		return err
	}
	if slices.ContainsFunc(c.inbox, func(m message) bool { return m.Type == "message" }) {
		return nil // they are told next
	}
	return checkpointed("interrupted")
}

func (c *chat) print(m message) error { return c.out.Encode(m) }

func failed(class, text string) *end {
	return &end{message{Type: "result", Status: "failed", Class: class, Message: text}}
}

func checkpointed(why string) *end {
	return &end{message{Type: "result", Status: "checkpointed", Message: why}}
}
