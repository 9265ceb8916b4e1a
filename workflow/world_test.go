package workflow_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

// world does with moves what a store does, by its rules, and lets jobs end as
// outcome says.
type world struct {
	jobs     []workflow.Job
	kept     workflow.Batch // told of what has changed
	told     []workflow.Job // what it was told last
	resolved map[job.Name]*job.Resolved
	atMost   map[job.Name]int // parts of a node that were out at once
	outcome  func(*workflow.Job)
}

func newWorld(specs []job.Spec, outcome func(*workflow.Job)) *world {
	w := &world{resolved: map[job.Name]*job.Resolved{}, atMost: map[job.Name]int{}, outcome: outcome}
	w.add(specs)
	return w
}

func (w *world) add(specs []job.Spec) {
	for i := range specs {
		if w.find(specs[i].Name) != nil {
			continue
		}
		j := workflow.Job{Spec: &specs[i], State: job.Queued}
		if !specs[i].Flow.Alone() {
			j.Held = job.HeldForNeeds
		}
		w.jobs = append(w.jobs, j)
	}
}

func (w *world) find(name job.Name) *workflow.Job {
	for i := range w.jobs {
		if w.jobs[i].Spec.Name == name {
			return &w.jobs[i]
		}
	}
	return nil
}

// apply does one move, or says why no store would.
func (w *world) apply(m workflow.Move) error {
	held := func(name job.Name, holds ...job.Hold) (*workflow.Job, error) {
		j := w.find(name)
		if j == nil || j.State != job.Queued || !slices.Contains(holds, j.Held) {
			return nil, fmt.Errorf("%T of %s, which is %+v", m, name, j)
		}
		return j, nil
	}
	switch m := m.(type) {
	case workflow.Ready:
		j, err := held(m.Name, job.HeldForNeeds)
		if err != nil {
			return err
		}
		for _, need := range j.Spec.Flow.Needs {
			if n := w.find(need); n == nil || !n.State.Terminal() {
				return fmt.Errorf("%s is ready before its need %s has ended", m.Name, need)
			}
		}
		j.Held, w.resolved[m.Name] = "", m.Resolved
		w.count(j.Spec.Flow.Node)
	case workflow.Keep:
		j, err := held(m.Name, job.HeldForNeeds)
		if err != nil {
			return err
		}
		j.Held = m.For
	case workflow.Skip:
		j, err := held(m.Name, job.HeldForNeeds)
		if err != nil {
			return err
		}
		j.State, j.Skipped, j.Held = job.Cancelled, m.Why, ""
	case workflow.Spawn:
		if _, err := held(m.Node, job.HeldForParts); err != nil {
			return err
		}
		w.add(m.Specs)
	case workflow.Conclude:
		j, err := held(m.Name, job.HeldForParts)
		if err != nil {
			return err
		}
		j.State, j.Held, j.Exit, j.Output, j.Message, j.Class = job.Completed, "", m.Exit, m.Result, m.DeadLetter, m.Class
	case workflow.Cancel:
		j := w.find(m.Name)
		if j == nil || j.State.Terminal() || j.CancelRequested {
			return fmt.Errorf("cancel of %s, which is %+v", m.Name, j)
		}
		if j.CancelRequested = j.Held == ""; !j.CancelRequested { // else its worker is told
			j.State, j.Held = job.Cancelled, ""
		}
	}
	return nil
}

func (w *world) count(node job.Name) {
	out := 0
	for _, j := range w.jobs {
		if node != "" && j.Spec.Flow.Node == node && j.State == job.Queued && j.Held == "" {
			out++
		}
	}
	w.atMost[node] = max(w.atMost[node], out)
}

// runnable returns the jobs that a worker could take.
func (w *world) runnable() []int {
	var list []int
	for i, j := range w.jobs {
		if j.State == job.Queued && j.Held == "" {
			list = append(list, i)
		}
	}
	return list
}

// end lets a runnable job end.
func (w *world) end(i int) {
	j := &w.jobs[i]
	j.State, j.Exit = job.Completed, job.ExitSucceeded
	j.Output, _ = json.Marshal("answer of " + j.Spec.Name)
	if w.outcome(j); j.CancelRequested {
		j.State, j.Exit, j.Output = job.Completed, job.ExitCancelled, nil
	}
}

// ask returns what follows, asked of a batch that has just been read. The kept one says
// the same of what has changed.
func (w *world) ask() []workflow.Move {
	return asked(&workflow.Batch{Shells: w.kept.Shells, Workflow: w.kept.Workflow}, w.jobs)
}

func asked(b *workflow.Batch, jobs []workflow.Job) []workflow.Move {
	for i, j := range jobs {
		b.Put(i, j)
	}
	return b.Advance()
}

// askKept returns what follows from what has changed since it was asked last.
func (w *world) askKept() []workflow.Move {
	for i, j := range w.jobs {
		if i == len(w.told) {
			w.told = append(w.told, workflow.Job{})
		}
		if !reflect.DeepEqual(w.told[i], j) {
			w.told[i] = j
			w.kept.Put(i, j)
		}
	}
	return w.kept.Advance()
}

// settle asks and does until nothing follows any more.
func (w *world) settle() error {
	for range 10_000 {
		moves := w.askKept()
		if len(moves) == 0 {
			if missed := w.ask(); len(missed) > 0 {
				return fmt.Errorf("the kept batch has missed %v", missed)
			}
			return nil
		}
		for _, m := range moves {
			if err := w.apply(m); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("moves without an end: %v", w.askKept())
}

// finish runs everything, first come first served.
func (w *world) finish() error {
	for {
		if err := w.settle(); err != nil {
			return err
		}
		list := w.runnable()
		if len(list) == 0 {
			return w.unfinished()
		}
		w.end(list[0])
	}
}

func (w *world) unfinished() error {
	for _, j := range w.jobs {
		if !j.State.Terminal() {
			return fmt.Errorf("%s never ends: %+v", j.Spec.Name, j)
		}
	}
	return nil
}

// summary says how everything has ended, one line a job.
func (w *world) summary() string {
	var lines []string
	for _, j := range w.jobs {
		hash := ""
		if r := w.resolved[j.Spec.Name]; r != nil {
			hash = fmt.Sprintf("%s %v", r.Hash, r.Patches)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %q %s %q %s", j.Spec.Name, j.State, j.Exit, j.Skipped, j.Output, j.Message, hash))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// fate is a number that depends on a job's name and a seed only.
func fate(name job.Name, seed int) int {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d", name, seed)
	return int(h.Sum32() >> 3)
}
