package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Put says how the i-th job of the batch stands, in the order of submission. Its name
// and its flow never change, but for the words that an ended job does not need.
func (a *Batch) Put(i int, j Job) {
	if i == len(a.jobs) {
		a.jobs = append(a.jobs, j)
		a.add(i)
	} else {
		a.count(i, -1)
		a.jobs[i] = j
	}
	a.count(i, 1)
	if node := j.Spec.Flow.Node; node != "" {
		a.markName(node)
		return
	}
	a.mark(i)
	a.markNeeding(&j)
}

// Job returns how the i-th job stands.
func (a *Batch) Job(i int) *Job { return &a.jobs[i] }

// Settle says whether the end of the i-th job is final; see Job.Unsettled.
func (a *Batch) Settle(i int, settled bool) {
	if a.jobs[i].Unsettled == settled {
		a.jobs[i].Unsettled = !settled
		a.markNeeding(&a.jobs[i])
	}
}

// Over reports whether every job has ended.
func (a *Batch) Over() bool { return a.open == 0 }

// Again has Advance look at every job: some of its moves could not be made.
func (a *Batch) Again() {
	for i := range a.jobs {
		a.mark(i)
	}
}

// Advance returns what follows from what was put since it was asked last, in an order
// in which it can be done. What has been done is to be put; after what could not be,
// Again is to be called. No moves means that something must end, or somebody decide,
// before more follows.
//
// The same jobs always give the same moves, and what was done gives them no more.
func (a *Batch) Advance() []Move {
	a.moves, a.failures, a.cancels, a.before = nil, map[int]bool{}, map[int]bool{}, map[int]Job{}
	a.findCircles()
	for len(a.todo) > 0 {
		list := a.todo
		a.todo = nil
		slices.Sort(list)
		for _, n := range list {
			a.marked[n] = false // until a need of it ends by a move
			if a.latest[a.jobs[n].Spec.Name] == n {
				a.advance(n)
			}
		}
	}
	for i, j := range a.before {
		a.jobs[i] = j
	}
	return a.moves
}

// node is what is known of the parts of a job that never runs itself.
type node struct {
	parts []int // in the order of their numbers
	whole bool  // there are all of them
	open  int   // have not ended
	held  int   // of these, wait to be let go
	out   int   // of these, were let go, and run or may run
	next  int   // no part before it waits to be let go
}

// add takes in a job that is new.
func (a *Batch) add(i int) {
	if a.latest == nil {
		a.latest, a.heir, a.needed = map[job.Name]int{}, map[job.Name]int{}, map[job.Name][]int{}
		a.nodes = map[job.Name]*node{}
	}
	s := a.jobs[i].Spec
	before, known := a.latest[s.Name]
	a.latest[s.Name] = i
	a.waits, a.marked = append(a.waits, 0), append(a.marked, false)
	if s.Flow.Node != "" { // nobody needs a part
		n := a.node(s.Flow.Node)
		if at := slices.Index(n.parts, before); known && at >= 0 {
			n.parts = slices.Delete(n.parts, at, at+1)
		}
		at, _ := slices.BinarySearchFunc(n.parts, s.Flow.Part, func(p, part int) int { return cmp.Compare(a.jobs[p].Spec.Flow.Part, part) })
		n.parts, n.next = slices.Insert(n.parts, at, i), min(n.next, at)
		return
	}
	first := firstName(s.Name)
	if old, ok := a.heir[first]; !ok || a.jobs[old].Spec.Flow.Restart <= s.Flow.Restart {
		a.heir[first] = i
	}
	for _, need := range s.Flow.Needs {
		a.needed[need] = append(a.needed[need], i)
	}
	a.circles = nil
}

func (a *Batch) node(name job.Name) *node {
	if a.nodes[name] == nil {
		a.nodes[name] = &node{}
	}
	return a.nodes[name]
}

func (a *Batch) parts(name job.Name) []int {
	if n := a.nodes[name]; n != nil {
		return n.parts
	}
	return nil
}

// count counts a job as it stands: by 1, or by -1 before that changes.
func (a *Batch) count(i, by int) {
	j := &a.jobs[i]
	if j.State.Terminal() {
		return
	}
	a.open += by
	if j.Spec.Flow.Node == "" {
		return
	}
	n := a.node(j.Spec.Flow.Node)
	n.open += by
	switch {
	case j.State == job.Queued && j.Held == job.HeldForNeeds:
		n.held += by
	case j.Held == "":
		n.out += by
	}
}

// mark has Advance look at a job.
func (a *Batch) mark(i int) {
	if !a.marked[i] {
		a.marked[i], a.todo = true, append(a.todo, i)
	}
}

func (a *Batch) markName(name job.Name) {
	if i, ok := a.latest[name]; ok {
		a.mark(i)
	}
}

// markNeeding marks the jobs that need one.
func (a *Batch) markNeeding(j *Job) {
	for _, i := range a.needed[firstName(j.Spec.Name)] {
		a.mark(i)
	}
}

// findCircles finds the jobs that need one another, where a need means who stands for
// it now, unless no job was added since it was done last.
func (a *Batch) findCircles() {
	if a.circles != nil {
		return
	}
	a.circles = map[int]string{}
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
	_, cycles := g.order()
	for _, cycle := range cycles {
		for _, n := range cycle {
			a.circles[n] = g.text(cycle)
			a.mark(n)
		}
	}
}

// edit returns a job to note in what a move will make of it. Advance takes that back:
// what has been done is put.
func (a *Batch) edit(j *Job) *Job {
	i := a.latest[j.Spec.Name]
	if _, noted := a.before[i]; !noted {
		a.before[i] = *j
	}
	return j
}

// firstName returns the name of a job before its team restarted it.
func firstName(name job.Name) job.Name {
	first, _, _ := strings.Cut(string(name), "+")
	return job.Name(first)
}

// advance says what follows for one job.
func (a *Batch) advance(n int) {
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
	if circle := a.circles[n]; circle != "" {
		a.fail(j, job.Config, "its needs go in a circle: "+circle)
		return
	}
	if !a.areMet(n) {
		return
	}
	if f.ForEach != nil && a.node(j.Spec.Name).whole {
		a.forEach(j)
		return
	}
	env := a.environment(j)
	if len(a.parts(j.Spec.Name)) == 0 && !a.condition(j, env) {
		return
	}
	switch {
	case f.ForEach != nil:
		if a.makeParts(j, env) {
			a.forEach(j)
		}
	case f.Loop != nil:
		a.loop(j, env)
	default:
		a.release(j, env)
	}
}

// areMet reports whether all that a job needs has ended. One whose need does not exist
// has failed.
func (a *Batch) areMet(n int) bool {
	j := &a.jobs[n]
	needs := j.Spec.Flow.Needs
	// It goes on at the need that was waited for. Then it begins again: a team may have
	// restarted one.
	for _, from := range []int{a.waits[n], 0} {
		for at := from; at < len(needs); at++ {
			i, ok := a.heir[needs[at]]
			if !ok {
				a.fail(j, job.Config, fmt.Sprintf("it needs %s, which is not among the jobs that were submitted with it", needs[at]))
				return false
			}
			if !a.jobs[i].settled() {
				a.waits[n] = at
				return false
			}
		}
		if from == 0 {
			break
		}
	}
	return true
}

// condition reports whether the job's `if` holds; if not, the job has ended.
func (a *Batch) condition(j *Job, env *environment) bool {
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
func (a *Batch) unmet(j *Job) string {
	for _, need := range j.Spec.Flow.Needs {
		if n := &a.jobs[a.heir[need]]; !n.succeeded() {
			return fmt.Sprintf("it needs %s, which has not succeeded: %s", need, n.state())
		}
	}
	return "a need has not succeeded"
}

// release lets an ordinary job run.
func (a *Batch) release(j *Job, env *environment) {
	r, err := a.resolve(j, env)
	if err != nil {
		a.fail(j, job.Config, err.Error())
		return
	}
	a.ready(j, r)
}

func (a *Batch) ready(j *Job, r *job.Resolved) {
	a.edit(j).Held = ""
	a.moves = append(a.moves, Ready{j.Spec.Name, r})
}

func (a *Batch) skip(j *Job, why string) {
	a.edit(j)
	j.State, j.Skipped, j.Held = job.Cancelled, why, ""
	a.moves = append(a.moves, Skip{j.Spec.Name, why})
	a.markNeeding(j)
}

// keep notes that a job stands for its parts.
func (a *Batch) keep(j *Job, text string) {
	if j.Held != job.HeldForParts {
		a.edit(j).Held = job.HeldForParts
		a.moves = append(a.moves, Keep{j.Spec.Name, job.HeldForParts, job.Waiting{Reason: job.WaitParts, Text: text}.String()})
	}
}

func (a *Batch) fail(j *Job, class job.ErrorClass, why string) {
	a.keep(j, "its failure is being recorded")
	a.edit(j)
	j.Class, j.Message = class, why
	a.conclude(j, Conclude{Name: j.Spec.Name, Exit: job.ExitFailed, DeadLetter: why, Class: class})
}

func (a *Batch) conclude(j *Job, c Conclude) {
	a.edit(j)
	j.State, j.Exit, j.Output, j.Held = job.Completed, c.Exit, c.Result, ""
	a.moves = append(a.moves, c)
	a.markNeeding(j)
}

// cancelParts stops what a node has left when it ended otherwise than by its
// parts: somebody withdrew it, or its time ran out.
func (a *Batch) cancelParts(node *Job) {
	for _, n := range a.parts(node.Spec.Name) {
		if p := &a.jobs[n]; !p.State.Terminal() && !p.CancelRequested {
			a.moves = append(a.moves, Cancel{p.Spec.Name})
		}
	}
}
