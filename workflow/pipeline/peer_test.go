package pipeline_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// peer is the worker's side of a feed.
type peer struct {
	lines *bufio.Scanner
	out   io.Writer
}

// line is any line that a worker gets.
type line struct {
	Type  string
	Seq   int64
	Event job.EventType
	Data  json.RawMessage
	State json.RawMessage
	Again bool
	Error string
	Acked int64

	Replays string
}

// read returns the next line; false when standard input is closed.
func (p *peer) read() (l line, ok bool) {
	if !p.lines.Scan() {
		return l, false
	}
	if err := json.Unmarshal(p.lines.Bytes(), &l); err != nil {
		panic(err)
	}
	return l, true
}

func (p *peer) say(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(p.out, "%s\n", text)
}

func (p *peer) publish(input int64, t job.EventType, data string) {
	p.say(pipeline.PublishLine{Type: "publish", Event: t, Data: json.RawMessage(data), For: input})
}

func (p *peer) ack(seq int64, state string) {
	p.say(pipeline.AckLine{Type: "ack", Seq: seq, State: json.RawMessage(state)})
}

// feed runs a worker against a feed until both have ended.
func feed(ctx context.Context, f *pipeline.Feed, work func(*peer)) error {
	stdin, toWorker := io.Pipe()
	fromWorker, stdout := io.Pipe()
	f.Now = time.Now
	var worker sync.WaitGroup
	worker.Go(func() {
		work(&peer{bufio.NewScanner(stdin), stdout})
		stdin.Close()
		stdout.Close()
	})
	err := f.Run(ctx, toWorker, fromWorker)
	worker.Wait()
	return err
}

// streams is a line of streaming stages: each publishes what the next takes.
func streams(n, buffer, batch int) *job.Pipeline {
	p := &job.Pipeline{ID: "streams"}
	for i := range n {
		s := job.Stage{
			ID: job.Name(fmt.Sprintf("s%d", i)), Job: job.Name(fmt.Sprintf("s%d", i)), Streams: true, Buffer: buffer, Batch: batch,
			Publishes: []job.EventType{job.EventType(fmt.Sprintf("e%d", i))},
		}
		if i > 0 {
			s.Subscribes = []job.EventType{job.EventType(fmt.Sprintf("e%d", i-1))}
		}
		p.Stages = append(p.Stages, s)
	}
	return p
}

func openLog(t testing.TB, store pipeline.Store, p *job.Pipeline, seeds int) *pipeline.Log {
	t.Helper()
	log, err := pipeline.Open(context.Background(), store, "batch", p)
	check(t, err)
	if seeds > 0 {
		check(t, log.Seed(context.Background(), json.RawMessage(numbers(seeds)), start))
	}
	return log
}

// copier passes each event on, as the type of its own stage, and ends in order.
func copier(t job.EventType, took func(line)) func(*peer) {
	return func(p *peer) {
		for l, ok := p.read(); ok; l, ok = p.read() {
			switch l.Type {
			case "event":
				took(l)
				p.publish(l.Seq, t, string(l.Data))
				p.ack(l.Seq, "")
			case "end":
				p.ack(0, "")
				return
			}
		}
	}
}

func status(t testing.TB, log *pipeline.Log, id job.Name) pipeline.Status {
	t.Helper()
	all, err := log.Status(context.Background())
	check(t, err)
	i := slices.IndexFunc(all, func(s pipeline.Status) bool { return s.Stage == id })
	return all[i]
}
