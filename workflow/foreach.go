package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// itemsOf returns the list of a for_each, or the expression that gives it.
func itemsOf(f *job.ForEach) (list []any, expression string, err error) {
	switch v := decode(f.Items).(type) {
	case []any:
		return v, "", nil
	case string:
		if strings.TrimSpace(v) != "" {
			return nil, v, nil
		}
	}
	return nil, "", errors.New("want a list, or one expression that gives a list, such as ${{ jobs.NAME.output.files }}")
}

func maxItems(f *job.ForEach) int {
	if f.Max > 0 {
		return f.Max
	}
	return job.DefaultForEachMax
}

// items returns the list of a for_each.
func (e *environment) items(f *job.ForEach) ([]any, error) {
	list, text, err := itemsOf(f)
	if err != nil {
		return nil, err
	}
	if text != "" {
		if text, err = whole(text); err != nil {
			return nil, err
		}
		value, err := e.eval(text)
		if err != nil {
			return nil, fmt.Errorf("${{ %s }}: %w", clip(text, 80), err)
		}
		var ok bool
		if list, ok = value.([]any); !ok {
			return nil, fmt.Errorf("${{ %s }} gives %s, want a list", clip(text, 80), kindOf(value))
		}
	}
	if len(list) > maxItems(f) {
		return nil, fmt.Errorf("has %d items, at most %d are allowed (for_each.max)", len(list), maxItems(f))
	}
	return list, nil
}

// forEach says what follows for a node that makes a job of each item, all of which are
// there.
func (a *Batch) forEach(j *Job) {
	n := a.node(j.Spec.Name)
	a.keep(j, fmt.Sprintf("%d parts", len(n.parts)))
	switch {
	case n.open == 0:
		a.concludeParts(j, n.parts)
	case n.held > 0:
		a.releaseParts(j, n, j.Spec.Flow.ForEach.MaxParallel)
	}
}

// makeParts keeps a node for its parts and makes those that are missing. It reports
// whether there were none.
func (a *Batch) makeParts(j *Job, env *environment) bool {
	n := a.node(j.Spec.Name)
	items, err := env.items(j.Spec.Flow.ForEach)
	if err != nil {
		a.fail(j, job.Config, fmt.Sprintf("for_each.items: %v", err))
		return false
	}
	spawn := Spawn{Node: j.Spec.Name}
	for _, i := range missingParts(a.jobs, n.parts, len(items)) {
		s, err := part(j.Spec, i, env.with(map[string]any{"item": items[i-1], "index": i - 1}))
		if err != nil {
			a.fail(j, job.Config, fmt.Sprintf("item %d: %v", i, err))
			return false
		}
		spawn.Specs = append(spawn.Specs, *s)
	}
	a.keep(j, fmt.Sprintf("%d parts", len(items)))
	if n.whole = len(spawn.Specs) == 0; !n.whole {
		a.moves = append(a.moves, spawn)
	}
	return n.whole
}

// missingParts returns the numbers of 1 to n that no part has.
func missingParts(jobs []Job, parts []int, n int) []int {
	there := map[int]bool{}
	for _, p := range parts {
		there[jobs[p].Spec.Flow.Part] = true
	}
	var missing []int
	for i := 1; i <= n; i++ {
		if !there[i] {
			missing = append(missing, i)
		}
	}
	return missing
}

// part returns the specification of a node's n-th part, its expressions replaced.
func part(node *job.Spec, n int, env *environment) (*job.Spec, error) {
	r, err := replaced(node, env)
	if err != nil {
		return nil, err
	}
	s := *node
	s.Name = job.PartName(node.Name, n)
	s.Instructions, s.SystemPrompt, s.Verify, s.Flow.Input = r.Instructions, r.SystemPrompt, r.Verify, r.Input
	// The key was the node's: its parts are no duplicates of one another.
	s.Key, s.OnDuplicate, s.Turn = "", job.RunEach, ""
	s.Flow.Node, s.Flow.Part, s.Flow.Restart = node.Name, n, 0
	s.Flow.If, s.Flow.ForEach = "", nil
	text, err := json.Marshal(&s)
	if err == nil && len(text) > job.MaxSpec {
		err = fmt.Errorf("the job has %d bytes as JSON with its expressions replaced, at most %d are allowed", len(text), job.MaxSpec)
	}
	return &s, err
}

// releaseParts lets as many parts run at once as may.
func (a *Batch) releaseParts(j *Job, n *node, atOnce int) {
	held := func(p *Job) bool { return p.State == job.Queued && p.Held == job.HeldForNeeds }
	for n.next < len(n.parts) && !held(&a.jobs[n.parts[n.next]]) {
		n.next++
	}
	out, patches := n.out, a.patches(j.Spec.Flow.From)
	for _, i := range n.parts[n.next:] {
		if atOnce > 0 && out >= atOnce {
			return
		}
		p := &a.jobs[i]
		if !held(p) {
			continue
		}
		r, err := a.final(p, patches)
		if err != nil {
			a.fail(p, job.Config, err.Error())
			continue
		}
		a.ready(p, r)
		out++
	}
}

// concludeParts ends a node of which every part has ended: with the list of what
// they gave, or as the first of them that did not succeed.
func (a *Batch) concludeParts(node *Job, parts []int) {
	outputs := []any{}
	var cancelled, failed *Job
	for _, n := range parts {
		p := &a.jobs[n]
		outputs = append(outputs, decode(p.Output))
		switch state := p.state(); {
		case state == stateSucceeded:
		case state == stateFailed || state == stateExpired:
			if failed == nil {
				failed = p
			}
		case cancelled == nil:
			cancelled = p
		}
	}
	switch {
	case failed != nil:
		a.failBy(node, failed, len(parts))
	case cancelled != nil:
		a.conclude(node, Conclude{Name: node.Spec.Name, Exit: job.ExitCancelled})
	default:
		a.succeed(node, outputs)
	}
}

// succeed ends a node with its output.
func (a *Batch) succeed(node *Job, output any) {
	result, err := encode(output)
	if err != nil {
		a.fail(node, job.Unknown, err.Error())
		return
	}
	a.conclude(node, Conclude{Name: node.Spec.Name, Exit: job.ExitSucceeded, Result: result})
}

// failBy ends a node as failed since a part of it has.
func (a *Batch) failBy(node, part *Job, of int) {
	class := part.Class
	why := fmt.Sprintf("part %s (%d of %d) failed: %s", part.Spec.Name, part.Spec.Flow.Part, of, part.Message)
	if part.state() == stateExpired {
		class, why = job.Timeout, fmt.Sprintf("part %s (%d of %d) has expired: its deadline passed before it was started", part.Spec.Name, part.Spec.Flow.Part, of)
	}
	if class == job.NoError {
		class = job.Unknown
	}
	a.fail(node, class, why)
}
