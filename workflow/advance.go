package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Advance returns what follows from how the jobs of a batch stand, in an order in
// which it can be done; it may be done in part, too. When it has been, ask again:
// what was spawned may be ready. No moves means that something must end, or
// somebody decide, before more follows.
//
// The same Batch always gives the same moves, and what was done gives them no
// more. b is not changed.
func Advance(b *Batch) []Move {
	a := newAdvance(b)
	order, cycles := a.graph.order()
	for _, cycle := range cycles {
		for _, n := range cycle {
			a.inCircle[n] = a.graph.text(cycle)
		}
	}
	for _, n := range order {
		if a.latest[a.jobs[n].Spec.Name] == n {
			a.advance(n)
		}
	}
	return a.moves
}

// advance is one question to Advance.
type advance struct {
	jobs     []Job // a copy: moves that end a job are noted in it
	graph    *graph
	latest   map[job.Name]int   // by name
	heir     map[job.Name]int   // by the name before restarts: who stands for it now
	parts    map[job.Name][]int // of a node, in the order of their numbers
	inCircle map[int]string
	batch    *Batch       // whose Jobs are looked at in jobs
	failures map[int]bool // of skipped jobs: whether a failure is behind it
	cancels  map[int]bool
	moves    []Move
}

func newAdvance(b *Batch) *advance {
	a := &advance{
		jobs: slices.Clone(b.Jobs), latest: map[job.Name]int{}, heir: map[job.Name]int{}, parts: map[job.Name][]int{}, inCircle: map[int]string{}, batch: b,
		failures: map[int]bool{}, cancels: map[int]bool{},
	}
	for i := range a.jobs {
		s := a.jobs[i].Spec
		a.latest[s.Name] = i
		if s.Flow.Node != "" {
			continue // nobody needs a part
		}
		first := firstName(s.Name)
		if old, ok := a.heir[first]; !ok || a.jobs[old].Spec.Flow.Restart <= s.Flow.Restart {
			a.heir[first] = i
		}
	}
	for i := range a.jobs {
		if f := &a.jobs[i].Spec.Flow; f.Node != "" && a.latest[a.jobs[i].Spec.Name] == i {
			a.parts[f.Node] = append(a.parts[f.Node], i)
		}
	}
	for _, parts := range a.parts {
		slices.SortStableFunc(parts, func(x, y int) int { return cmp.Compare(a.jobs[x].Spec.Flow.Part, a.jobs[y].Spec.Flow.Part) })
	}
	a.graph = a.heirGraph()
	return a
}

// heirGraph is the graph in which a need means who stands for it now.
func (a *advance) heirGraph() *graph {
	g := &graph{names: make([]job.Name, len(a.jobs)), needs: make([][]int, len(a.jobs))}
	for i := range a.jobs {
		s := a.jobs[i].Spec
		g.names[i] = s.Name
		for _, need := range s.Flow.Needs {
			if n, ok := a.heir[need]; ok {
				g.needs[i] = append(g.needs[i], n)
			}
		}
	}
	return g
}

// firstName returns the name of a job before its team restarted it.
func firstName(name job.Name) job.Name {
	first, _, _ := strings.Cut(string(name), "+")
	return job.Name(first)
}

// advance says what follows for one job.
func (a *advance) advance(n int) {
	j := &a.jobs[n]
	f := &j.Spec.Flow
	if j.isNode() && j.State.Terminal() {
		a.cancelParts(j)
		return
	}
	if j.State != job.Queued || j.Held != job.HeldForNeeds && j.Held != job.HeldForParts || f.Node != "" {
		return // it runs, has ended, waits for somebody else, or is its node's to release
	}
	if j.Held == job.HeldForParts && !j.isNode() {
		return // it stands for what the events of a pipeline's stage are given to
	}
	if circle := a.inCircle[n]; circle != "" {
		a.fail(j, job.Config, "its needs go in a circle: "+circle)
		return
	}
	for _, need := range f.Needs {
		i, ok := a.heir[need]
		if !ok {
			a.fail(j, job.Config, fmt.Sprintf("it needs %s, which is not among the jobs that were submitted with it", need))
			return
		}
		if !a.jobs[i].settled() {
			return
		}
	}
	env := a.environment(j)
	if len(a.parts[j.Spec.Name]) == 0 && !a.condition(j, env) {
		return
	}
	switch {
	case f.ForEach != nil:
		a.forEach(j, env)
	case f.Loop != nil:
		a.loop(j, env)
	default:
		a.release(j, env)
	}
}

// condition reports whether the job's `if` holds; if not, the job has ended.
func (a *advance) condition(j *Job, env *environment) bool {
	text := j.Spec.Flow.If
	if text == "" {
		if !env.status.success {
			a.skip(j, a.unmet(j))
		}
		return env.status.success
	}
	text, err := whole(text)
	if err != nil {
		a.fail(j, job.Config, fmt.Sprintf("its condition (if): %v", err))
		return false
	}
	if !env.status.success && !asksStatus(text) {
		a.skip(j, a.unmet(j))
		return false
	}
	value, err := env.eval(text)
	holds, isBool := value.(bool)
	switch {
	case err == nil && !isBool && value != nil:
		err = fmt.Errorf("gives %s, want true or false", kindOf(value))
		fallthrough
	case err != nil:
		a.fail(j, job.Config, fmt.Sprintf("its condition (if) ${{ %s }}: %v", clip(text, 80), err))
		return false
	case !holds:
		a.skip(j, fmt.Sprintf("its condition did not hold: %s", clip(text, 200)))
	}
	return holds
}

// unmet says which need has not succeeded.
func (a *advance) unmet(j *Job) string {
	for _, need := range j.Spec.Flow.Needs {
		if n := &a.jobs[a.heir[need]]; !n.succeeded() {
			return fmt.Sprintf("it needs %s, which has not succeeded: %s", need, n.state())
		}
	}
	return "a need has not succeeded"
}

// release lets an ordinary job run.
func (a *advance) release(j *Job, env *environment) {
	r, err := a.resolve(j, env)
	if err != nil {
		a.fail(j, job.Config, err.Error())
		return
	}
	a.ready(j, r)
}

func (a *advance) ready(j *Job, r *job.Resolved) {
	j.Held = ""
	a.moves = append(a.moves, Ready{j.Spec.Name, r})
}

func (a *advance) skip(j *Job, why string) {
	j.State, j.Skipped, j.Held = job.Cancelled, why, ""
	a.moves = append(a.moves, Skip{j.Spec.Name, why})
}

// keep notes that a job stands for its parts.
func (a *advance) keep(j *Job, text string) {
	if j.Held != job.HeldForParts {
		j.Held = job.HeldForParts
		a.moves = append(a.moves, Keep{j.Spec.Name, job.HeldForParts, job.Waiting{Reason: job.WaitParts, Text: text}.String()})
	}
}

func (a *advance) fail(j *Job, class job.ErrorClass, why string) {
	a.keep(j, "its failure is being recorded")
	j.Class, j.Message = class, why
	a.conclude(j, Conclude{Name: j.Spec.Name, Exit: job.ExitFailed, DeadLetter: why, Class: class})
}

func (a *advance) conclude(j *Job, c Conclude) {
	j.State, j.Exit, j.Output, j.Held = job.Completed, c.Exit, c.Result, ""
	a.moves = append(a.moves, c)
}

// cancelParts stops what a node has left when it ended otherwise than by its
// parts: somebody withdrew it, or its time ran out.
func (a *advance) cancelParts(node *Job) {
	for _, n := range a.parts[node.Spec.Name] {
		if p := &a.jobs[n]; !p.State.Terminal() && !p.CancelRequested {
			a.moves = append(a.moves, Cancel{p.Spec.Name})
		}
	}
}
