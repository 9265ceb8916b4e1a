package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// module is what is measured; this module replaces it by the folder it lies in.
const module = "github.com/agentsched/agentsched"

// stopTime is how long a program that was told to end may take.
const stopTime = 20 * time.Second

// buildPrograms builds scheduler and agentcore as they are released, once, and
// returns the path of the scheduler.
func (b *bench) buildPrograms(ctx context.Context) (string, error) {
	bin, err := b.folder("bin")
	if err != nil {
		return "", err
	}
	path := filepath.Join(bin, "scheduler")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s (run this inside bench/): %w", module, err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bin+string(filepath.Separator), "./cmd/scheduler", "./cmd/agentcore")
	build.Dir = strings.TrimSpace(string(source))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

// command is a call of the scheduler, without the user's configuration. When
// ctx ends it is asked to end too, and it stops what it runs.
func command(ctx context.Context, program, state string, args ...string) (*exec.Cmd, *tail) {
	c := exec.CommandContext(ctx, program, append(args, "--state", state, "--log-level", "warn")...)
	c.Env = append(os.Environ(), "XDG_CONFIG_HOME="+state, "AGENTSCHED_SANDBOX__LEVEL=none") // what is held has rows of its own
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = stopTime
	said := &tail{}
	c.Stderr = said
	return c, said
}

// tail keeps the last bytes that were written to it, for a message.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.text = append(t.text, p...)
	if extra := len(t.text) - most; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(p), nil
}

// told adds to err what the program said.
func (t *tail) told(err error) error {
	if err == nil || len(t.text) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(t.text)))
}
