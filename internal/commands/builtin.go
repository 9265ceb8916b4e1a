package commands

import (
	"slices"
	"strings"
)

const notAllowed = "is not allowed"

// builtin returns "" if name is a builtin of the shell that runs no other
// program with these arguments, else why the command is refused.
func (r *reader) builtin(name string, args []Word) string {
	switch name {
	case ":", "true", "false", "cd", "pwd", "echo", "exit", "return", "break", "continue",
		"set", "shift", "umask", "times", "wait", "type":
		return ""
	case "test", "[":
		// bash: -v evaluates its operand as a[…], and so may run a command.
		if slices.ContainsFunc(args, func(w Word) bool { return w.is("-v") || w.is("-R") }) {
			return notPOSIX
		}
		return ""
	case "printf":
		if len(args) > 0 && strings.HasPrefix(args[0].Text, "-v") {
			return notPOSIX
		}
		return ""
	case "exec":
		if len(args) == 0 { // only redirections
			return ""
		}
	case "command":
		if len(args) > 1 && (args[0].is("-v") || args[0].is("-V")) {
			return ""
		}
	case "export", "readonly", "local":
		return r.variables(args, "-p")
	case "read":
		return r.variables(args, "-r")
	case "unset":
		if slices.ContainsFunc(args, func(w Word) bool { _, is := r.functions[w.Text]; return is }) {
			return "unsets a function; after that its name may be a program"
		}
		return r.variables(args, "-v")
	case "getopts":
		if len(args) >= 2 {
			return r.variables(args[1:2], "")
		}
	}
	return notAllowed
}

// specialBuiltin reports whether POSIX lets the builtin of this name come before
// a function of the same name.
func specialBuiltin(name string) bool {
	switch name {
	case ".", ":", "break", "continue", "eval", "exec", "exit", "export", "readonly", "return",
		"set", "shift", "source", "times", "trap", "unset":
		return true
	}
	return false
}

// variables checks arguments that name variables, NAME or NAME=value, after
// the one harmless option.
func (r *reader) variables(args []Word, option string) string {
	for i, w := range args {
		if i == 0 && option != "" && w.is(option) {
			continue
		}
		name, _, assigned := strings.Cut(w.Text, "=")
		if w.Dynamic && !assigned || !identifier(name) {
			return "does not name its variables plainly"
		}
		if guarded(name) {
			return guardedReason
		}
	}
	return ""
}

func identifier(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// guarded reports whether the variable decides what the name of a command
// means, or holds commands that a shell or the system's loader runs by itself.
// Variables by which single programs are told to run others (GOFLAGS,
// GIT_PAGER) are not known here.
func guarded(name string) bool {
	switch name {
	case "PATH", "ENV", "BASH_ENV", "PS1", "PS2", "PS4", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || strings.HasPrefix(name, "BASH_FUNC_")
}
