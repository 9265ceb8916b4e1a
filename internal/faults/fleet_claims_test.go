//go:build linux

package faults

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// claimLog is what clients of a fleet have seen of its jobs.
type claimLog struct {
	start time.Time

	mu   sync.Mutex // guards what follows
	jobs map[string]*seenJob
}

// seenJob is one of them, by the time since the log's start.
type seenJob struct {
	asked, acknowledged time.Duration // when it was submitted first, and when that was answered
	over                time.Duration // when it was seen to have ended
}

func newClaimLog() *claimLog { return &claimLog{start: time.Now(), jobs: map[string]*seenJob{}} }

func (l *claimLog) job(name string) *seenJob {
	if l.jobs[name] == nil {
		l.jobs[name] = &seenJob{}
	}
	return l.jobs[name]
}

func (l *claimLog) ask(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.job(name); j.asked == 0 {
		j.asked = time.Since(l.start)
	}
}

func (l *claimLog) acknowledge(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.job(name).acknowledged = time.Since(l.start)
}

func (l *claimLog) end(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.job(name); j.over == 0 {
		j.over = time.Since(l.start)
	}
}

func (l *claimLog) acknowledged() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.jobs {
		if j.acknowledged > 0 {
			n++
		}
	}
	return n
}

func (l *claimLog) ended(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[name] != nil && l.jobs[name].over > 0
}

// claimState is a job as a queue that does one thing after the other has it.
type claimState struct {
	queued, over bool
	held, last   int // attempts: the one that runs, and the newest
}

// claimStep is something that happens to it.
type claimStep struct {
	job     string
	do      string
	attempt int
}

// claimModel is what claims are: of one job, one at a time, each newer than those before, none when the
// job has ended.
var claimModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byJob := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(claimStep).job
			byJob[name] = append(byJob[name], op)
		}
		for _, part := range byJob {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return claimState{} },
	Step: func(state, in, _ any) (bool, any) {
		s, step := state.(claimState), in.(claimStep)
		ok := s.queued
		switch step.do {
		case "submit":
			ok, s.queued = !s.queued, true
		case "begin":
			ok = ok && !s.over && s.held == 0 && step.attempt > s.last
			s.held, s.last = step.attempt, step.attempt
		case "end":
			ok = ok && s.held == step.attempt
			s.held = 0
		case "over":
			ok = ok && !s.over && s.held == 0
			s.over = true
		}
		return ok, s
	},
	DescribeOperation: func(in, _ any) string { return fmt.Sprintf("%+v", in) },
}

// history joins what clients saw with what the runs themselves said: a run has begun at the latest when it said
// so, and it lasts as long as a process of it, or until its host was frozen if another took its place.
func (l *claimLog) history(c *census) (all []porcupine.Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(step claimStep, from, to time.Duration) {
		all = append(all, porcupine.Operation{ClientId: len(all), Input: step, Call: int64(from), Return: int64(max(to, from+1))})
	}
	for name, j := range l.jobs {
		add(claimStep{job: name, do: "submit"}, j.asked, j.acknowledged)
		add(claimStep{job: name, do: "over"}, j.asked, j.over)
	}
	for _, s := range c.spans {
		began, ended := s.began.Sub(l.start), s.ended.Sub(l.start)
		until := ended
		if !s.frozen.IsZero() {
			until = s.frozen.Sub(l.start)
			began = min(began, until) // it was there, whenever it said so
		}
		add(claimStep{s.job, "begin", s.attempt}, l.job(s.job).asked, began)
		add(claimStep{s.job, "end", s.attempt}, until, ended)
	}
	return all
}

// checkClaims looks whether the claims are linearizable: Herlihy and Wing, TOPLAS 1990.
func (f *fleet) checkClaims() (wrong []string) {
	history := f.log.history(f.census)
	byJob := claimModel.Partition(history)
	for _, part := range byJob {
		if !porcupine.CheckOperations(claimModel, part) {
			wrong = append(wrong, fmt.Sprintf("the claims of a job are not linearizable: %s", describeClaims(part)))
		}
	}
	return wrong
}

func describeClaims(history []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range history {
		fmt.Fprintf(&b, "\n  %s to %s: %+v", time.Duration(op.Call), time.Duration(op.Return), op.Input)
	}
	return b.String()
}
