package agentcli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Program is a command line program that an adapter drives.
type Program struct {
	Kind    job.WorkerKind
	Name    string // looked up on PATH where the settings name no command
	Install string // how to get it, e.g. "npm install -g @openai/codex"

	// Login is what to do where neither a key nor a login is found.
	Login string
	// Keys are the variables of which any one is a key, or makes one unnecessary.
	Keys []string
	// Folder is where the program keeps its state: the variable that names it, and
	// the folder below HOME where that is not set.
	FolderVariable, Folder string
	// LoginFiles are the files in Folder of which any one may hold a login.
	LoginFiles []string
}

// Locate is worker.Adapter's.
func (p Program) Locate(s job.WorkerSettings) (string, error) {
	return worker.LocateProgram(p.Kind, s, p.Name, p.Install)
}

// Version is worker.Adapter's.
func (Program) Version(ctx context.Context, path string) (string, error) {
	return worker.ProgramVersion(ctx, path)
}

// UserFolder returns the folder in which the user's own state of the program is.
func (p Program) UserFolder(getenv func(name string) string) string {
	if dir := getenv(p.FolderVariable); p.FolderVariable != "" && dir != "" {
		return dir
	}
	return filepath.Join(getenv("HOME"), p.Folder)
}

// Credentials is worker.Credentialed's.
func (p Program) Credentials(s job.WorkerSettings, getenv func(name string) string) string {
	if todo, own := worker.MissingKey(s, getenv); own {
		return todo
	}
	if slices.ContainsFunc(p.Keys, func(name string) bool { return getenv(name) != "" }) {
		return ""
	}
	dir := p.UserFolder(getenv)
	for _, file := range p.LoginFiles {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return ""
		}
	}
	return p.Login
}

// Arguments returns the arguments that the settings' command begins with,
// followed by args.
func Arguments(t *worker.Task, args ...string) []string {
	if len(t.Settings.Command) > 1 {
		args = slices.Concat(t.Settings.Command[1:], args)
	}
	return args
}

// TooLong returns the failure of instructions that are longer than a program takes.
func TooLong(program string, n, most int, unit string) error {
	return &worker.Failure{Class: job.Config,
		Message: fmt.Sprintf("instructions of %d %s: %s takes at most %d", n, unit, program, most),
		Hint:    "put the long part in a file of the workspace and name it in the instructions"}
}

// Model returns the model to ask for; "" is the one of the user's own settings.
func Model(t *worker.Task) string {
	if t.Model != "" {
		return t.Model
	}
	return t.Settings.Model
}

// PassVariables returns env with those of the named variables that t finds.
func PassVariables(env []string, t *worker.Task, names ...string) []string {
	for _, name := range names {
		if v := t.Getenv(name); v != "" {
			env = worker.SetEnv(env, name, v)
		}
	}
	return env
}

// SetVariables returns env with the variables of assignments, each NAME=VALUE.
func SetVariables(env []string, assignments ...string) []string {
	for _, a := range assignments {
		name, value, _ := strings.Cut(a, "=")
		env = worker.SetEnv(env, name, value)
	}
	return env
}
