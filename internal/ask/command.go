package ask

import (
	"path"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/commands"
)

// maxNested is how many shells within shells are looked into.
const maxNested = 4

// parts returns the parts of a command line, at least one. A shell that is given its
// script in plain text is what the script is.
func parts(line, dir string) []commands.Part { return nested(line, dir, 0) }

func nested(line, dir string, depth int) []commands.Part {
	list := commands.Read(line, dir)
	if slices.ContainsFunc(list, moves) {
		dir = "" // where a shell within begins
	}
	var all []commands.Part
	for _, part := range list {
		script, ok := shellScript(part.Words)
		switch {
		case ok && depth == maxNested:
			part.Kind, part.Reason = commands.Unread, "has more shells in shells than are looked into"
			all = append(all, part)
		case ok:
			all = append(all, nested(script, dir, depth+1)...)
		default:
			if part.Kind == commands.Write && !path.IsAbs(part.Path) {
				part.Path = ""
			}
			all = append(all, part)
		}
	}
	if len(all) == 0 {
		return []commands.Part{{Kind: commands.Unread, Reason: "names no command"}}
	}
	return all
}

// moves reports whether a part changes the folder.
func moves(p commands.Part) bool {
	return p.Kind == commands.Call && slices.Contains([]string{"cd", "chdir", "pushd", "popd"}, p.Words[0].Text)
}

// shellScript returns the script of exactly `bash -c SCRIPT` or `bash -lc SCRIPT`, of
// a known shell and with a script that is known.
func shellScript(words []commands.Word) (string, bool) {
	if len(words) != 3 || words[0].Dynamic || words[1].Dynamic || words[2].Dynamic {
		return "", false
	}
	dir, name := path.Split(words[0].Text)
	known := slices.Contains([]string{"sh", "bash", "zsh", "dash"}, name) && slices.Contains([]string{"", "/bin/", "/usr/bin/", "/usr/local/bin/"}, dir)
	return words[2].Text, known && (words[1].Text == "-c" || words[1].Text == "-lc")
}

// harmless reports whether a command is a builtin of every shell that runs nothing and
// changes nothing outlasting, so that it needs no grant.
func harmless(p *commands.Part) bool {
	if p.Kind != commands.Call || p.Reason != "" || cannotMatch(p) != "" {
		return false
	}
	args := p.Words[1:]
	switch p.Words[0].Text {
	case ":", "true", "false", "cd", "pwd", "echo", "exit", "break", "continue", "wait", "type",
		"command", "exec": // Reason is empty for `command -v` and for `exec` without a program
		return true
	case "test", "[", "printf":
		// zsh computes numbers, and runs the command of a[$(…)] there.
		return !slices.ContainsFunc(args, func(w commands.Word) bool { return w.Dynamic || strings.ContainsAny(w.Text, "$`") })
	case "set":
		return !slices.ContainsFunc(args, func(w commands.Word) bool {
			options := strings.TrimPrefix(w.Text, "-")
			return w.Dynamic || w.Text != "pipefail" && (options == w.Text || strings.Trim(options, "euxo") != "")
		})
	}
	return false
}

// wrappers run the command that follows among their arguments.
var wrappers = []string{
	"builtin", "busybox", "chroot", "chrt", "command", "doas", "env", "exec", "find", "ionice", "nice", "nocorrect", "noglob", "nohup",
	"nsenter", "parallel", "setsid", "stdbuf", "strace", "sudo", "taskset", "time", "timeout", "unshare", "watch", "xargs",
}

// runs returns the words of a command, and, where it is one that runs another, all
// that may be the words of that one.
func runs(words []commands.Word) [][]commands.Word {
	all := [][]commands.Word{words}
	if slices.Contains(wrappers, path.Base(words[0].Text)) {
		for i := 1; i < min(len(words), maxWrapped); i++ {
			all = append(all, words[i:])
		}
	}
	return all
}

// maxWrapped is how many words may stand before a wrapped command.
const maxWrapped = 64

// hidden reports whether it cannot be told what a part runs.
func hidden(p *commands.Part) bool {
	switch p.Kind {
	case commands.Unread:
		return true
	case commands.Call:
		return slices.ContainsFunc(runs(p.Words), func(words []commands.Word) bool {
			switch name := path.Base(words[0].Text); {
			case words[0].Dynamic:
				return len(words) >= len(p.Words)-1 // it is the name, or what a wrapper runs
			case words[0].Text == ".":
				return len(words) == len(p.Words) // elsewhere it is the folder
			case slices.Contains([]string{"eval", "source", "trap", "alias"}, name):
				return true
			case slices.Contains([]string{"sh", "bash", "zsh", "dash", "ksh", "ash", "fish"}, name):
				return slices.ContainsFunc(words[1:], func(w commands.Word) bool {
					return w.Dynamic || strings.HasPrefix(w.Text, "-") && strings.HasSuffix(w.Text, "c")
				})
			}
			return false
		})
	}
	return false
}

// cannotMatch says why no pattern but * allows a part; "" if one may.
func cannotMatch(p *commands.Part) string {
	switch p.Kind {
	case commands.Setting:
		return "sets a variable"
	case commands.Definition:
		return "defines a function"
	case commands.Nested:
		return "puts in what another command prints"
	case commands.Foreign, commands.Unread:
		return p.Reason
	case commands.Call:
		if p.Words[0].Dynamic {
			return "has a name that is only known when it runs"
		}
		if slices.ContainsFunc(p.Words, func(w commands.Word) bool { return !w.Dynamic && w.Text == "}" }) {
			return "has a } that zsh takes for the end of a block"
		}
	}
	return ""
}
