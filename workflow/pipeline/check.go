package pipeline

import (
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// Problem is why a pipeline is refused at its creation.
type Problem struct {
	Stage job.Name // "" for the pipeline's own
	// Field is the path inside the pipeline as a job file writes it, e.g.
	// "stages[1].subscribes[0]".
	Field   string
	Message string // the value, and what would be right
}

// Error names the stage, the field and what is wrong.
func (p Problem) Error() string {
	if p.Stage == "" {
		return p.Field + ": " + p.Message
	}
	return fmt.Sprintf("stage %q: %s: %s", p.Stage, p.Field, p.Message)
}

// Check returns all that is wrong with a pipeline whose stages run jobs out of
// these, in the order of its fields. One without problems cannot wait for an
// event that nobody publishes, nor for itself.
func Check(p *job.Pipeline, jobs []job.Spec) []Problem {
	c := checker{pipeline: p, jobs: map[job.Name]*job.Spec{}, stages: map[job.Name]int{}, takes: map[job.Name]job.Name{}}
	for i := range jobs {
		c.jobs[jobs[i].Name] = &jobs[i]
	}
	if err := job.ValidName(string(p.ID)); err != nil {
		c.bad("", "id", "%v", err)
	}
	if len(p.Stages) == 0 {
		c.bad("", "stages", "are missing, want at least one")
	}
	var earlier []job.EventType
	for i := range p.Stages {
		s, at := &p.Stages[i], fmt.Sprintf("stages[%d]", i)
		c.identity(i, s, at)
		c.subscriptions(i, s, at, earlier)
		c.publications(s, at)
		c.numbers(s, at)
		earlier = append(earlier, s.Publishes...)
	}
	c.waiting()
	return c.problems
}

type checker struct {
	pipeline *job.Pipeline
	jobs     map[job.Name]*job.Spec
	stages   map[job.Name]int      // where a stage's id was seen first
	takes    map[job.Name]job.Name // job → the stage that it is of
	problems []Problem
}

func (c *checker) bad(stage job.Name, field, format string, args ...any) {
	c.problems = append(c.problems, Problem{stage, field, fmt.Sprintf(format, args...)})
}

func (c *checker) identity(i int, s *job.Stage, at string) {
	if err := job.ValidName(string(s.ID)); err != nil {
		c.bad(s.ID, at+".id", "%v", err)
	}
	if first, twice := c.stages[s.ID]; twice {
		c.bad(s.ID, at+".id", "%q is the id of stages[%d] already, want another", s.ID, first)
	} else {
		c.stages[s.ID] = i
	}
	if _, known := c.jobs[s.Job]; !known {
		c.bad(s.ID, at+".job", "there is no job %q in this file, want the id of the job that says how the stage runs", s.Job)
	} else if other, taken := c.takes[s.Job]; taken {
		c.bad(s.ID, at+".job", "%q is the job of stage %q already, want one of its own", s.Job, other)
	} else {
		c.takes[s.Job] = s.ID
		c.job(s, at)
	}
}

// job looks at whether a job can be that of a stage.
func (c *checker) job(s *job.Stage, at string) {
	spec := c.jobs[s.Job]
	f := spec.Flow
	switch {
	case f.ForEach != nil || f.Loop != nil:
		c.bad(s.ID, at+".job", "%q has for_each or loop, which the job of a stage cannot have", s.Job)
	case spec.Type == job.External:
		c.bad(s.ID, at+".job", "%q is of type EXTERNAL, want one that a worker runs", s.Job)
	case s.Streams && f.Oversight != nil:
		c.bad(s.ID, at+".streams", "job %q asks for oversight, which a worker that streams cannot wait for; leave one of them out", s.Job)
	}
}

func (c *checker) subscriptions(i int, s *job.Stage, at string, earlier []job.EventType) {
	if i > 0 && len(s.Subscribes) == 0 {
		c.bad(s.ID, at+".subscribes", "is missing: the stage would be given nothing, want %s", offer(earlier))
	}
	for n, t := range s.Subscribes {
		field := fmt.Sprintf("%s.subscribes[%d]", at, n)
		switch {
		case i == 0:
			c.bad(s.ID, field, "%q: the first stage is given the seed and cannot subscribe to anything, since no earlier stage publishes", t)
		case slices.Index(s.Subscribes, t) < n:
			c.bad(s.ID, field, "%q stands there twice", t)
		case !slices.Contains(earlier, t):
			c.bad(s.ID, field, "no earlier stage publishes %q%s, want %s", t, c.publisher(i, t), offer(earlier))
		}
	}
}

// publisher tells who does publish a type that was subscribed to too early.
func (c *checker) publisher(i int, t job.EventType) string {
	for n := range c.pipeline.Stages[i:] {
		if s := &c.pipeline.Stages[i+n]; slices.Contains(s.Publishes, t) {
			if n == 0 {
				return " (it publishes it itself)"
			}
			return fmt.Sprintf(" (stage %q does, which comes later)", s.ID)
		}
	}
	return ""
}

func offer(types []job.EventType) string {
	if len(types) == 0 {
		return "a stage before it that publishes something"
	}
	types = slices.Clone(types)
	slices.Sort(types)
	return "one of " + list(slices.Compact(types))
}

func (c *checker) publications(s *job.Stage, at string) {
	for n, t := range s.Publishes {
		field := fmt.Sprintf("%s.publishes[%d]", at, n)
		switch {
		case t == SeedType:
			c.bad(s.ID, field, "%q is what the first stage is given, want another name", t)
		case slices.Index(s.Publishes, t) < n:
			c.bad(s.ID, field, "%q stands there twice", t)
		default:
			if err := job.ValidName(string(t)); err != nil {
				c.bad(s.ID, field, "%v", err)
			}
		}
	}
}

func (c *checker) numbers(s *job.Stage, at string) {
	for _, n := range []struct {
		field string
		value int
	}{{"batch", s.Batch}, {"max_parallel", s.MaxParallel}, {"buffer", s.Buffer}} {
		if n.value < 0 {
			c.bad(s.ID, at+"."+n.field, "%d is negative, want 1 or more, or nothing", n.value)
		}
	}
}

// waiting finds stages whose job waits for the end of another stage's: with a
// bounded buffer between them, both would wait for ever.
func (c *checker) waiting() {
	for i := range c.pipeline.Stages {
		s := &c.pipeline.Stages[i]
		seen := map[job.Name]bool{s.Job: true}
		for next := c.needs(s.Job); len(next) > 0; next = next[1:] {
			name := next[0]
			if stage, ours := c.takes[name]; ours && name != s.Job {
				c.bad(s.ID, fmt.Sprintf("stages[%d].job", i), "%q needs %q, the job of stage %q: stages run at once, so a stage cannot wait for another's end", s.Job, name, stage)
				break
			}
			if !seen[name] {
				seen[name] = true
				next = append(next, c.needs(name)...)
			}
		}
	}
}

func (c *checker) needs(name job.Name) []job.Name {
	if spec := c.jobs[name]; spec != nil {
		return slices.Clone(spec.Flow.Needs)
	}
	return nil
}

// Slots returns how many workers a pipeline must be able to run at once: a
// worker that streams keeps its slot while it waits for those behind it.
func Slots(p *job.Pipeline) int {
	slots, parts := 0, 0
	for i := range p.Stages {
		if p.Stages[i].Streams {
			slots++
		} else {
			parts = 1
		}
	}
	return slots + parts
}
