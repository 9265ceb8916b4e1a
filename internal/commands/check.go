package commands

import (
	"errors"
	"fmt"
)

// Writing says which files a script may write by redirections.
type Writing struct {
	Allowed bool   // by the capability edit; else none
	Dir     string // the workspace, where the script begins
}

// Check returns the first thing in script that the patterns do not allow, as an error
// that names it, or nil. Every simple command is looked at, wherever it stands: in
// lists, pipes, subshells, substitutions, functions and here-documents.
//
// Allowed without a pattern are: the shell's own constructs; calls of a
// function that is certain to be defined by then (its body is looked at too);
// the builtins that run no other program (see builtin); redirections, as far as
// the job may write (see Writing); and assignments, except of variables that
// decide which program a name means or what else is run (see guarded).
//
// Refused without one are all that run a command the check cannot see: a name
// that is only known at run time, eval, source and ., exec, command, env,
// xargs, trap, alias, sh -c; and whatever dash and bash do not read alike,
// since either may be /bin/sh. A pattern "*" allows everything.
func Check(script string, patterns []Pattern, w Writing) error {
	for _, p := range patterns {
		if p.Everything() {
			return nil
		}
	}
	for _, part := range Read(script, w.Dir) {
		reason := part.Reason
		switch part.Kind {
		case Call:
			if matchesAny(patterns, part.Words) {
				continue
			}
		case Write:
			reason = part.refusal(w.Allowed)
		}
		switch {
		case reason == "":
		case part.Line == 0:
			return errors.New(reason)
		default:
			return fmt.Errorf("line %d: %q %s", part.Line, part.Text, reason)
		}
	}
	return nil
}

func matchesAny(patterns []Pattern, words []Word) bool {
	for _, p := range patterns {
		if p.Matches(words) {
			return true
		}
	}
	return false
}

// refusal says why a redirection is refused of a job that may edit, or may not; ""
// if it is not.
func (p *Part) refusal(edit bool) string {
	switch {
	case !edit:
		return "writes a file, which needs the capability edit"
	case p.Where == Outside:
		return "writes a file outside of the workspace"
	case p.Where == Left:
		return "writes a file after the script has left the workspace by cd"
	}
	return ""
}
