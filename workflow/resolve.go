package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// resolve replaces the expressions in a job's words.
func (a *Batch) resolve(j *Job, env *environment) (*job.Resolved, error) {
	words, err := replaced(j.Spec, env)
	if err != nil {
		return nil, err
	}
	words.Patches = a.patches(j.Spec.Flow.From)
	return a.sealed(j, words)
}

// final returns what a part runs with: its words were replaced when it was made,
// and what is in them now may have come from anywhere, so they are not looked
// at again.
func (a *Batch) final(j *Job, patches []job.Patch) (*job.Resolved, error) {
	s := j.Spec
	return a.sealed(j, &job.Resolved{Instructions: s.Instructions, SystemPrompt: s.SystemPrompt, Verify: s.Verify, Input: s.Flow.Input, Patches: patches})
}

// replaced returns the words of s with the expressions in them replaced.
func replaced(s *job.Spec, env *environment) (*job.Resolved, error) {
	r := &job.Resolved{}
	for _, f := range []struct {
		field, text string
		to          *string
		shell       bool
	}{
		{"instructions", s.Instructions, &r.Instructions, env.isScript(s)},
		{"system_prompt", s.SystemPrompt, &r.SystemPrompt, false},
		{"verify", s.Verify, &r.Verify, true},
	} {
		text, err := env.text(f.text, f.shell)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.field, err)
		}
		*f.to = text
	}
	if strings.TrimSpace(r.Instructions) == "" && s.Type != job.External {
		return nil, errors.New("instructions: are empty with their expressions replaced, want what the worker should do")
	}
	if len(s.Flow.Input) == 0 {
		return r, nil
	}
	value, err := env.input("input", decode(s.Flow.Input))
	if err != nil {
		return nil, err
	}
	if r.Input, err = encode(value); err == nil && len(r.Input) > MaxText {
		err = errTooLong
	}
	if err == nil {
		err = env.batch.validInput(s, r.Input)
	}
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	return r, nil
}

// isScript reports whether a worker that may run the job takes its instructions
// for a shell script.
func (e *environment) isScript(s *job.Spec) bool {
	is := func(k job.WorkerKind) bool { return k == job.ShellWorker || slices.Contains(e.batch.Shells, k) }
	return is(s.Worker) || slices.ContainsFunc(s.Fallback, func(c job.Choice) bool { return is(c.Worker) })
}

// text replaces the expressions in a text. In a shell script each becomes a
// reference to a variable that is set before it, so that nothing in a value is
// run or taken for a part of the script.
func (e *environment) text(text string, shell bool) (string, error) {
	pieces, err := split(text)
	if err != nil {
		return "", err
	}
	var b, set strings.Builder
	n := 0
	for _, p := range pieces {
		if !p.expression {
			b.WriteString(p.text)
			continue
		}
		value, err := e.eval(p.text)
		word := ""
		if err == nil {
			word, err = textOf(value)
		}
		if err != nil {
			return "", fmt.Errorf("${{ %s }}: %w", clip(p.text, 80), err)
		}
		if shell {
			n++
			fmt.Fprintf(&set, "EXPR_%d=%s\n", n, shellQuoted(word))
			word = fmt.Sprintf("${EXPR_%d}", n)
		}
		if b.WriteString(word); b.Len()+set.Len() > MaxText {
			return "", errTooLong
		}
	}
	script := b.String()
	if !strings.HasPrefix(script, "#!") {
		return set.String() + script, nil
	}
	first, rest, _ := strings.Cut(script, "\n") // has to stay the first line
	return first + "\n" + set.String() + rest, nil
}

// shellQuoted writes a text as one word of a shell script. A NUL byte, which
// no variable can hold, is left out.
func shellQuoted(text string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "\x00", "").Replace(text) + "'"
}

// input replaces the expressions in the texts of a JSON value. A text that is
// one expression becomes its value, whatever that is.
func (e *environment) input(field string, value any) (any, error) {
	switch v := value.(type) {
	case string:
		pieces, err := split(v)
		if err == nil && len(pieces) == 1 && pieces[0].expression {
			if value, err = e.eval(pieces[0].text); err != nil {
				return nil, fmt.Errorf("%s: ${{ %s }}: %w", field, clip(pieces[0].text, 80), err)
			}
			left, err := measure(value, MaxText, 0, 0)
			if err == nil && left < 0 {
				err = errTooLong
			}
			if err != nil {
				return nil, fmt.Errorf("%s: ${{ %s }}: %w", field, clip(pieces[0].text, 80), err)
			}
			return value, nil
		}
		text := ""
		if err == nil {
			text, err = e.text(v, false)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		return text, nil
	case []any:
		for i := range v {
			var err error
			if v[i], err = e.input(fmt.Sprintf("%s[%d]", field, i), v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			var err error
			if v[k], err = e.input(field+"."+k, v[k]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// patches returns what the named jobs have changed, and before that, what they
// themselves were built on, each once.
func (a *Batch) patches(from []job.Name) []job.Patch {
	var all []job.Patch
	seen := map[int]bool{}
	var add func([]job.Name)
	add = func(from []job.Name) {
		for _, name := range from {
			i, ok := a.heir[name]
			if !ok || seen[i] {
				continue
			}
			seen[i] = true
			j := &a.jobs[i]
			add(j.Spec.Flow.From)
			for _, p := range a.own(j) {
				if p.Patch != "" {
					all = append(all, p.patch())
				}
			}
		}
	}
	add(from)
	return all
}

// own returns who made the patches of a job: itself, or a node's parts in order.
func (a *Batch) own(j *Job) []*Job {
	if !j.isNode() {
		return []*Job{j}
	}
	var parts []*Job
	for _, n := range a.parts(j.Spec.Name) {
		parts = append(parts, &a.jobs[n])
	}
	return parts
}

// sealed adds the hash over all inputs: the words, what the needs have left, and
// the content of the patches, not where they lie.
func (a *Batch) sealed(j *Job, r *job.Resolved) (*job.Resolved, error) {
	type need struct {
		Output        json.RawMessage
		State, Digest string
		Files         []string
	}
	in := struct {
		Words   job.Resolved
		Needs   map[job.Name]need
		Patches []string
	}{Words: *r, Needs: map[job.Name]need{}}
	in.Words.Patches = nil
	for _, name := range j.Spec.Flow.Needs {
		if i, ok := a.heir[name]; ok {
			n := &a.jobs[i]
			in.Needs[name] = need{Output: n.Output, State: n.state(), Digest: n.Digest, Files: a.files(n)}
		}
	}
	for _, p := range r.Patches {
		in.Patches = append(in.Patches, string(p.Job)+" "+a.jobs[a.latest[p.Job]].Digest)
	}
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("hash the inputs: %w", err)
	}
	sum := sha256.Sum256(text)
	r.Hash = hex.EncodeToString(sum[:])
	return r, nil
}
