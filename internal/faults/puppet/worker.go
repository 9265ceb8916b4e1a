package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/faults/act"
)

// task is what a worker needs to know of the protocol's task line.
type task struct {
	Name         string `json:"name"`
	Attempt      int    `json:"attempt"`
	Instructions string `json:"instructions"`
	Session      string `json:"session"`
	Home         string `json:"home"`
}

// worker is the life of a worker that speaks the worker protocol.
func (s *strings) worker() error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	var t task
	if err := json.Unmarshal(line, &t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	// The instructions of a run that goes on with a session only say so; the
	// session remembers what to do.
	memory := filepath.Join(t.Home, "acts")
	if t.Session != "" {
		text, err := os.ReadFile(memory)
		if err != nil {
			return fmt.Errorf("remember the session: %w", err)
		}
		t.Instructions = string(text)
	}
	acts, err := decode(t.Instructions)
	if err != nil {
		return err
	}
	if err := os.WriteFile(memory, []byte(t.Instructions), 0o600); err != nil {
		return fmt.Errorf("keep the session: %w", err)
	}
	p := &play{strings: s, act: act.Of(acts, t.Attempt), job: t.Name, run: os.Getenv(tagVariable), talks: true}
	if !p.act.Deaf {
		go func() { // a cancel line is the only other one there is
			if _, err := in.ReadBytes('\n'); err == nil {
				p.say(map[string]any{"type": "result", "status": "failed", "message": "cancelled"})
				os.Exit(0)
			}
		}()
	}
	return p.perform()
}

// shell is the life of a command of the shell worker.
func (s *strings) shell(job, text string) error {
	acts, err := decode(text)
	if err != nil {
		return err
	}
	run := os.Getenv(tagVariable)
	attempt := 0
	for i := len(run) - 1; i >= 0 && run[i] != '/'; i-- {
		if attempt, err = strconv.Atoi(run[i:]); err != nil {
			return fmt.Errorf("the run %q: %w", run, err)
		}
	}
	p := &play{strings: s, act: act.Of(acts, attempt), job: job, run: run}
	return p.perform()
}

// decode reads the acts at the beginning of text: feedback may follow them.
func decode(text string) (acts []act.Act, err error) {
	err = json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&acts)
	if err == nil && len(acts) == 0 {
		err = fmt.Errorf("no acts")
	}
	if err != nil {
		return nil, fmt.Errorf("read the acts of %.200q: %w", text, err)
	}
	return acts, nil
}

// play is one run.
type play struct {
	*strings
	act      act.Act
	job, run string
	talks    bool // the worker protocol, not plain lines
}

func (p *play) perform() error {
	if p.act.Deaf {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	}
	if err := p.hello(act.Leader, p.job, p.run); err != nil {
		return err
	}
	if err := p.fork(p.act.Forks, p.job, p.run); err != nil {
		return err
	}
	if err := p.daemonise(p.act.Daemons, p.act.Naked, p.job, p.run); err != nil {
		return err
	}
	p.say(map[string]any{"type": "session", "session": "session of " + p.job})
	if err := p.use(p.act.Tokens / 2); err != nil {
		return err
	}
	p.text("at work")
	time.Sleep(time.Duration(p.act.Millis) * time.Millisecond) // it is the work
	if err := p.use(p.act.Tokens - p.act.Tokens/2); err != nil {
		return err
	}
	return p.end()
}

func (p *play) end() error {
	switch p.act.Do {
	case act.Fail:
		return p.fail()
	case act.Crash:
		// SIGSEGV would become a Go panic.
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case act.Half:
		os.Stdout.WriteString(`{"type":"result","status":"comp`)
		os.Exit(9)
	case act.Lie:
		p.say(map[string]any{"type": "result", "status": "completed", "answer": "a lie"})
		os.Exit(7)
	case act.Hang:
		forever()
	case act.Overrun:
		for {
			if err := p.use(p.act.Tokens); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond) // a model is not faster either
		}
	case act.Flood:
		p.flood()
	case act.Eat:
		eat()
	case act.Wait:
		return p.wait()
	}
	return p.succeed()
}

// succeed tells the suite, which is the job's side effect, and then the core.
func (p *play) succeed() error {
	if err := p.tell(act.Word{Done: true}); err != nil {
		return err
	}
	if p.talks {
		p.say(map[string]any{"type": "result", "status": "completed", "answer": act.Answer(p.run)})
	} else {
		fmt.Println(act.Answer(p.run))
	}
	return nil
}

func (p *play) fail() error {
	if p.talks {
		p.say(map[string]any{"type": "result", "status": "failed", "class": p.act.Class, "message": "told to fail", "retry_after_ms": 1})
		return nil
	}
	os.Exit(3)
	return nil
}

// use says that tokens were consumed, to the suite before anybody else.
func (p *play) use(tokens int64) error {
	if tokens == 0 || !p.talks {
		return nil
	}
	if err := p.tell(act.Word{Used: tokens}); err != nil {
		return err
	}
	p.say(map[string]any{"type": "usage", "input_tokens": tokens - tokens/4, "output_tokens": tokens / 4})
	return nil
}

// wait waits for the suite's word. Meanwhile it shows that it does not hang.
func (p *play) wait() error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	heard := make(chan error, 1)
	go func() { heard <- p.tell(act.Word{Ready: true}) }()
	for {
		select {
		case err := <-heard:
			if errors.Is(err, errAgain) {
				return p.fail()
			}
			if err != nil {
				return err
			}
			return p.succeed()
		case <-tick.C:
			p.text("waiting")
		}
	}
}

func (p *play) flood() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for i := range p.act.Lines {
		switch i % 4 {
		case 0:
			fmt.Fprintf(out, "{\"type\":\"text\",\"text\":\"line %d of very many\"}\n", i)
		case 1:
			fmt.Fprintf(out, "no protocol at all, in line %d\n", i)
		case 2:
			fmt.Fprintf(out, "{\"type\":\"text\",\"text\":17}\n")
		case 3:
			fmt.Fprintf(os.Stderr, "line %d of the log\n", i)
		}
	}
}

// eat takes memory and uses all of it.
func eat() {
	const size = 96 << 20
	taken := make([]byte, size)
	for i := 0; i < size; i += os.Getpagesize() {
		taken[i] = 1
	}
}

func (p *play) text(s string) {
	if p.talks {
		p.say(map[string]any{"type": "text", "text": s})
	} else {
		fmt.Println(s)
	}
}

// say prints a line of the worker protocol. What cannot be said is not: the
// core may be dead.
func (p *play) say(line map[string]any) {
	if !p.talks {
		return
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, _ = os.Stdout.Write(append(text, '\n'))
	}
}
