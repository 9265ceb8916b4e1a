package shell

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/commands"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Adapter runs Task.Instructions with /bin/sh, or with the shell that the
// settings' Command names (e.g. ["bash", "-eu"]).
//
// The script is a file, so its size has no bound: one in memory, the shell's
// descriptor 3, where the system has that and the shell is a known one, else one
// in Task.Scratch. A script that had to be checked against patterns is given with -c instead. Its
// standard input is empty. No option is set: as with any script, a failed command in the
// middle does not end it unless the script says `set -e`.
//
// How it ends:
//
//	exit status 0          success; the answer is the end of standard output
//	126 or 127             CONFIG: a program was not found or not executable
//	another status         UNKNOWN, which the default table retries with backoff
//	a signal, unasked for  CRASH
type Adapter struct{}

const (
	defaultShell = "/bin/sh"
	scriptName   = "script"
)

var (
	_ worker.Adapter    = Adapter{}
	_ worker.Folderless = Adapter{}
	_ worker.Scripted   = Adapter{}
)

// Locate returns the path of the shell.
func (Adapter) Locate(s job.WorkerSettings) (string, error) {
	return worker.LocateProgram("shell", s, defaultShell, "install it from your system's packages, or name another shell in the worker's command")
}

// Version returns "": a POSIX shell has no common way to tell its version, and
// nothing here depends on it.
func (Adapter) Version(context.Context, string) (string, error) { return "", nil }

// Folderless holds for every run: Start makes t.Scratch if it must.
func (Adapter) Folderless(*worker.Task) bool { return true }

// Scripted holds: the program is the job's script.
func (Adapter) Scripted() {}

// Start checks that the job may run this script and puts it where the shell
// can read it.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	shell, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	if err := checkInterpreter(t.Instructions, shell); err != nil {
		return nil, err
	}
	if err := checkAllowed(t, shell); err != nil {
		return nil, err
	}
	var args []string
	if len(t.Settings.Command) > 0 {
		args = slices.Clone(t.Settings.Command[1:])
	}
	script, held := filepath.Join(t.Scratch, scriptName), []*os.File(nil)
	if _, any := t.CommandPatterns(); !any && len(t.Instructions) <= commands.MaxBytes {
		// A shell reads a file as it goes, so a script that was checked could
		// still append to itself.
		args = append(args, "-c", t.Instructions, scriptName)
	} else {
		if script, held, err = placeScript(t, shell); err != nil {
			return nil, fmt.Errorf("write the script of job %s: %w", cmp.Or(string(t.Name), string(t.Job)), err)
		}
		args = append(args, script)
	}
	env := slices.Clone(t.Environ)
	if t.Models != nil {
		env = worker.UnsetEnv(env, t.Settings.KeyEnv) // a real key stays with the gateway
	}
	return &session{
		script: script,
		title:  title(t.Instructions),
		command: worker.Command{
			Path:  shell,
			Args:  args,
			Env:   env,
			Dir:   t.Dir,
			Files: held,
		},
	}, nil
}

// placeScript returns the path by which the shell reads the script, and what it
// inherits for that. A shell that is not known may be a program that starts it
// elsewhere, e.g. in a container, where only folders can be brought along: it gets
// a file in Scratch.
func placeScript(t *worker.Task, shell string) (path string, held []*os.File, err error) {
	if known(shell) {
		if f, err := holdScript(t.Instructions); err == nil {
			return "/proc/self/fd/3", []*os.File{f}, nil
		}
	}
	path = filepath.Join(t.Scratch, scriptName)
	if err := os.MkdirAll(t.Scratch, 0o700); err != nil {
		return "", nil, err
	}
	return path, nil, os.WriteFile(path, []byte(t.Instructions), 0o600)
}

// known reports whether it is clear how the shell reads a script.
func known(shell string) bool {
	return slices.Contains([]string{"sh", "dash", "ash", "bash"}, path.Base(shell))
}

// checkInterpreter refuses a script that is no text, and one whose first line
// asks for another program: run by a shell, it would do something else than
// its author meant.
func checkInterpreter(script, shell string) error {
	if strings.ContainsRune(script, 0) {
		return &worker.Failure{
			Class: job.Config, Message: "the script contains a NUL byte",
			Hint: "write the script of a shell job as text",
		}
	}
	first, _, _ := strings.Cut(script, "\n")
	if !strings.HasPrefix(first, "#!") {
		return nil
	}
	words := strings.Fields(first[2:])
	if len(words) > 1 && path.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	if wants := path.Base(words[0]); wants != path.Base(shell) && wants != "sh" {
		return &worker.Failure{
			Class:   job.Config,
			Message: fmt.Sprintf("the script begins with %q, but %s would run it", strings.TrimSpace(first), shell),
			Hint:    fmt.Sprintf("call %s inside the script, or set the worker's command to [%s]", wants, wants),
		}
	}
	return nil
}

// checkAllowed refuses a script that the job's capabilities do not cover.
func checkAllowed(t *worker.Task, shell string) error {
	allowed, any := t.CommandPatterns()
	if any {
		return nil
	}
	if len(allowed) == 0 {
		return &worker.Failure{
			Class:   job.Config,
			Message: "a shell job needs the capability run_commands",
			Hint:    "add run_commands to its capabilities, or list what it may run in allow_commands (a job of type TOOL has run_commands by default)",
		}
	}
	if !known(shell) {
		return &worker.Failure{
			Class:   job.Config,
			Message: fmt.Sprintf("allow_commands can be checked for sh, dash and bash, not for %s", shell),
			Hint:    "grant run_commands without allow_commands, or use a worker with one of those shells",
		}
	}
	if err := commands.Check(t.Instructions, commands.Patterns(allowed...), commands.Writing{Allowed: t.Can(job.CanEdit), Dir: t.Dir}); err != nil {
		return &worker.Failure{
			Class:   job.Config,
			Message: err.Error() + "; allowed: " + strings.Join(allowed, ", "),
			Hint:    "change the script, or add a pattern such as \"go test *\" to allow_commands",
		}
	}
	return nil
}

// title returns the script's first line that does something, for people who
// watch.
func title(script string) string {
	for line := range strings.Lines(script) {
		line = strings.ToValidUTF8(strings.TrimSpace(line), "\uFFFD")
		if line != "" && !strings.HasPrefix(line, "#") {
			line, _ = job.Cut(line, maxTitle)
			return line
		}
	}
	return "(empty script)"
}

// maxTitle is in bytes, about two lines of a terminal.
const maxTitle = 200
