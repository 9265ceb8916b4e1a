package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/job"
)

// loop says what follows for a node that repeats its job until a check passes.
func (a *Batch) loop(j *Job, env *environment) {
	turns := a.parts(j.Spec.Name)
	if len(turns) == 0 {
		a.keep(j, "the first turn")
		a.spawnTurn(j, 1, env, nil, "")
		return
	}
	a.keep(j, "the next turn")
	last := &a.jobs[turns[len(turns)-1]]
	switch last.state() {
	case "":
		a.releaseTurn(j, turns, last)
		return
	case stateFailed, stateExpired:
		a.failBy(j, last, len(turns))
		return
	case stateCancelled, stateSkipped:
		a.conclude(j, Conclude{Name: j.Spec.Name, Exit: job.ExitCancelled})
		return
	}
	l := j.Spec.Flow.Loop
	checks := make([]verdict, len(turns))
	for i, n := range turns {
		var err error
		if checks[i], err = check(&a.jobs[n]); err != nil {
			a.fail(j, job.Config, fmt.Sprintf("turn %s: %v", a.jobs[n].Spec.Name, err))
			return
		}
	}
	latest := checks[len(checks)-1]
	if latest.passed {
		a.succeed(j, decode(last.Output))
		return
	}
	if why := a.stuck(l, turns, checks); why != "" {
		a.fail(j, job.VerifyFailed, why)
		return
	}
	a.spawnTurn(j, len(turns)+1, env, decode(last.Output), latest.message)
}

// spawnTurn adds the n-th turn, after one that gave last and failed the check.
func (a *Batch) spawnTurn(j *Job, n int, env *environment, last any, failure string) {
	s, err := part(j.Spec, n, env.with(map[string]any{"loop": map[string]any{"turn": n, "last": last, "failure": failure}}))
	if err != nil {
		a.fail(j, job.Config, fmt.Sprintf("turn %d: %v", n, err))
		return
	}
	a.moves = append(a.moves, Spawn{Node: j.Spec.Name, Specs: []job.Spec{*s}})
}

// releaseTurn lets the newest turn run, on what all turns before it have changed.
func (a *Batch) releaseTurn(node *Job, turns []int, t *Job) {
	if t.State != job.Queued || t.Held != job.HeldForNeeds {
		return
	}
	patches := a.patches(node.Spec.Flow.From)
	for _, n := range turns[:len(turns)-1] {
		if before := &a.jobs[n]; before.Patch != "" {
			patches = append(patches, before.patch())
		}
	}
	r, err := a.final(t, patches)
	if err != nil {
		a.fail(node, job.Config, err.Error())
		return
	}
	a.ready(t, r)
}

// verdict is how the check after a turn went.
type verdict struct {
	passed  bool
	message string
	words   string // what tells one failure from another; "" nothing does
}

// LastTurn reports whether a turn that ended well was its loop's last one: what it
// made passes the check.
func LastTurn(s *job.Spec, o *job.Outcome) bool {
	if s.Flow.Loop == nil || !o.Succeeded() {
		return false
	}
	t := &Job{Spec: s, Output: Output(s, o.Answer)}
	if o.Check != nil {
		t.Check = &CheckResult{Passed: o.Check.Passed, Message: o.Check.Text, Mute: o.Check.Mute}
	}
	v, err := check(t)
	return err == nil && v.passed
}

// check returns whether a turn that succeeded passes the loop's check.
func check(t *Job) (verdict, error) {
	l := t.Spec.Flow.Loop
	if l.Until == "" {
		if t.Check == nil {
			return verdict{}, errors.New("it has ended, but nobody has said whether it passes the check")
		}
		v := verdict{t.Check.Passed, t.Check.Message, t.Check.Message}
		if t.Check.Mute {
			v.words = ""
		}
		return v, nil
	}
	text, err := whole(l.Until)
	if err != nil {
		return verdict{}, fmt.Errorf("loop.until: %w", err)
	}
	output := decode(t.Output)
	if answer, ok := output.(string); ok && len(t.Spec.Output) == 0 && json.Valid([]byte(answer)) {
		output = decode(json.RawMessage(answer))
	}
	env := &environment{vars: map[string]any{"output": output, "loop": map[string]any{"turn": t.Spec.Flow.Part}}, status: status{success: true}, budget: newBudget()}
	value, err := env.eval(text)
	passed, ok := value.(bool)
	switch {
	case err != nil:
		return verdict{}, fmt.Errorf("loop.until ${{ %s }}: %w", clip(text, 80), err)
	case !ok && value != nil:
		return verdict{}, fmt.Errorf("loop.until ${{ %s }} gives %s, want true or false", clip(text, 80), kindOf(value))
	case passed:
		return verdict{passed: true}, nil
	}
	said, err := encode(output)
	return verdict{message: fmt.Sprintf("%s does not hold of the answer %s", text, clip(string(said), 2000)), words: string(said)}, err
}

// stuck returns why a loop whose last turn did not pass must not go on, or "".
func (a *Batch) stuck(l *job.Loop, turns []int, checks []verdict) string {
	same := l.MaxSame
	if same <= 0 {
		same = job.DefaultMaxSame
	}
	most := l.MaxIterations
	if most <= 0 {
		most = job.DefaultMaxIterations
	}
	failure := checks[len(checks)-1].message
	if run := a.sameDiff(turns); run >= same {
		same := "made the same change"
		if a.jobs[turns[len(turns)-1]].Digest == "" {
			same = "changed no file and answered the same"
		}
		return fmt.Sprintf("the loop no longer converges: its last %d turns %s (loop.max_same); the check says: %s", run, same, failure)
	}
	if run := sameWords(checks); run >= same {
		return fmt.Sprintf("the loop no longer converges: its last %d turns failed the check in the same words (loop.max_same): %s", run, failure)
	}
	files := map[string]bool{}
	for _, n := range turns {
		for _, f := range a.jobs[n].Files {
			files[f] = true
		}
	}
	if l.MaxFiles > 0 && len(files) > l.MaxFiles {
		return fmt.Sprintf("the loop's scope grows: its turns have changed %d files, at most %d are allowed (loop.max_files); the check says: %s", len(files), l.MaxFiles, failure)
	}
	if len(turns) >= most {
		return fmt.Sprintf("the check did not pass within %d turns (loop.max_iterations): %s", most, failure)
	}
	return ""
}

// sameWords returns how many checks, up to the last, failed in the same words; 0
// if that had none.
func sameWords(checks []verdict) int {
	words, run := checks[len(checks)-1].words, 0
	for run < len(checks) && words != "" && checks[len(checks)-1-run].words == words {
		run++
	}
	return run
}

// sameDiff returns how many turns, up to the last, made the same change. Turns
// that changed no file are compared by what they answered.
func (a *Batch) sameDiff(turns []int) int {
	last := &a.jobs[turns[len(turns)-1]]
	run := 1
	for run < len(turns) {
		before := &a.jobs[turns[len(turns)-1-run]]
		if before.Digest != last.Digest || last.Digest == "" && !bytes.Equal(before.Output, last.Output) {
			break
		}
		run++
	}
	return run
}
