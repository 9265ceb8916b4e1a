package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// talks is how often a round asks, answers and tells.
const talks = 100

// talkTimes are seconds: from a program's question until a person can read it, from the answer and from a message until the program
// has read it.
type talkTimes struct{ question, answer, message sample }

// talkCase measures what is between an agent's program and the people who talk with it, while nothing else is done.
func talkCase(ctx context.Context, b *bench) (_ []row, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	state, err := b.folder("talk")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(state, "bench.yaml")
	text := fmt.Sprintf("workers: {talker: {adapter: exec, command: [%q, %s]}}\n", self, talkerArg)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	l, err := serve(ctx, b, "talk", "--config", config)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, l.close) }()
	var ours, piped talkTimes
	for range b.rounds {
		if err = l.talked(ctx, &ours); err == nil {
			err = overPipes(ctx, self, &piped)
		}
		if err != nil {
			return nil, l.said.told(err)
		}
	}
	var rows []row
	for _, m := range []struct {
		what         string
		ours, theirs sample
	}{
		{"question of an agent, until it can be read", ours.question, piped.question},
		{"answer, until the agent's program has read it", ours.answer, piped.answer},
		{"message, until the agent's program has read it", ours.message, piped.message},
	} {
		rows = append(rows, beyond(m.what+", p50", m.ours, m.theirs, 0.5, bound{most: 50, unit: " ms more"}),
			beyond(fmt.Sprintf("  p99 of %d", len(m.ours)), m.ours, m.theirs, 0.99, bound{most: 200, unit: " ms more"}))
	}
	return rows, nil
}

// beyond is a row of what a quantile of ours is more than that of the program on pipes.
func beyond(what string, ours, piped sample, q float64, target bound) row {
	more := (ours.quantile(q) - piped.quantile(q)) * 1e3
	return row{what, showMillis(ours.quantile(q)), fmt.Sprintf("on pipes %.0f µs", piped.quantile(q)*1e6), fmt.Sprintf("%.1f ms more", more), target.String(), target.reached(more)}
}

// talked adds the times of a conversation with a job.
func (l *live) talked(ctx context.Context, t *talkTimes) error {
	ctx, cancel := context.WithTimeoutCause(ctx, liveWait, fmt.Errorf("%d questions and answers took more than %s", talks, liveWait))
	defer cancel()
	// An update that it cannot go on from is answered with a gap: then it is connected.
	updates, stop := iter.Pull2(l.client.Stream(ctx, client.StreamOptions{Kinds: []api.UpdateKind{api.UpdateSignal, api.UpdateEvent}, Last: "none-1"}))
	defer stop()
	next := func(what string, is func(*api.Update) bool) (api.Update, error) {
		for {
			switch u, err, ok := updates(); {
			case err != nil:
				return u, fmt.Errorf("wait for %s: %w", what, errors.Join(err, context.Cause(ctx)))
			case !ok || u.Signal == api.JobCompleted:
				return u, fmt.Errorf("the stream or the job has ended before %s", what)
			case is(&u):
				return u, nil
			}
		}
	}
	if _, err := next("the stream", func(u *api.Update) bool { return u.Kind == api.UpdateGap }); err != nil {
		return err
	}
	l.one++
	jobs, err := l.client.SubmitFile(ctx, api.JobFile{Text: fmt.Sprintf(
		"jobs:\n  - {id: talk-%d, worker: talker, workspace: {isolation: none}, capabilities: [read], ask: {for: [words]}, instructions: talk}\n", l.one)})
	if err != nil {
		return err
	}
	id := string(jobs.Jobs[0].ID)
	if _, err := next("the worker", func(u *api.Update) bool { return u.Signal == api.AgentStarted }); err != nil {
		return err
	}
	for range talks {
		if _, err := l.client.Tell(ctx, id, api.Say{Text: stamp()}); err != nil {
			return err
		}
		asked, err := next("the question", func(u *api.Update) bool { return u.Signal == api.QuestionAsked })
		if err != nil {
			return err
		}
		took, err := since(asked.Text)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(asked.Step)
		if err != nil {
			return err
		}
		if _, err := l.client.AnswerQuestion(ctx, id, number, api.AnswerQuestion{Text: stamp()}); err != nil {
			return err
		}
		said, err := next("what the program says", func(u *api.Update) bool { return u.Event != nil && u.Event.Kind == job.EventText })
		if err != nil {
			return err
		}
		if err := t.add(took, said.Event.Text); err != nil {
			return err
		}
	}
	if _, err := l.client.Tell(ctx, id, api.Say{Text: "end"}); err != nil {
		return err
	}
	return l.end(ctx, jobs)
}

// add adds what a talker and its caller have measured.
func (t *talkTimes) add(question float64, said string) error {
	var message, answer float64
	if _, err := fmt.Sscan(said, &message, &answer); err != nil {
		return fmt.Errorf("a talker said %q: %w", said, err)
	}
	t.question, t.answer, t.message = append(t.question, question), append(t.answer, answer), append(t.message, message)
	return nil
}

// overPipes adds the times of the same conversation with the program alone.
func overPipes(ctx context.Context, self string, t *talkTimes) (err error) {
	c := exec.CommandContext(ctx, self, talkerArg)
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stdin.Close(), c.Wait()) }()
	in, out := json.NewDecoder(bufio.NewReader(stdout)), json.NewEncoder(stdin)
	read := func(kind string) (l talkerLine, err error) {
		for l.Type != kind {
			if err := in.Decode(&l); err != nil {
				return l, err
			}
		}
		return l, nil
	}
	for i := range talks {
		if err := out.Encode(talkerLine{Type: "message", ID: fmt.Sprint(i), Text: stamp()}); err != nil {
			return err
		}
		q, err := read("question")
		if err != nil {
			return err
		}
		took, err := since(q.Text)
		if err != nil {
			return err
		}
		if err := out.Encode(talkerLine{Type: "answer", Question: q.ID, Text: stamp()}); err != nil {
			return err
		}
		said, err := read("text")
		if err != nil {
			return err
		}
		if err := t.add(took, said.Text); err != nil {
			return err
		}
	}
	if err := out.Encode(talkerLine{Type: "message", ID: "end", Text: "end"}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdout) // up to its end
	return err
}
