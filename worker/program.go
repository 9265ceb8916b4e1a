package worker

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// LocateProgram is what most adapters' Locate does: it returns the absolute
// path of the program that the settings name, else of byDefault, looked up on
// PATH; or a *NotInstalledError with the hint.
func LocateProgram(kind job.WorkerKind, s job.WorkerSettings, byDefault, hint string) (string, error) {
	name := byDefault
	if len(s.Command) > 0 {
		name = s.Command[0]
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", &NotInstalledError{Kind: kind, Program: name, Hint: hint}
	}
	return path, nil
}

// ProgramVersion is what most adapters' Version does: it runs the program with
// --version and returns the first word of its output that begins with a digit.
func ProgramVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	for _, word := range strings.Fields(string(out)) {
		if word[0] >= '0' && word[0] <= '9' {
			return word, nil
		}
	}
	return "", fmt.Errorf("ask %s for its version: no version in %.100q", path, out)
}
