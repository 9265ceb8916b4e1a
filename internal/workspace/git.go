package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// MinGit is the oldest git that works: the first whose `apply` can merge three
// ways into an index alone (--3way --cached).
const MinGit = "2.32"

// quiet switches off everything in a configuration, the repository's own above
// all, that would run a program, ask a question, start a daemon, or write the
// index in a form that cannot be copied alone. It overrides every file. Filters
// and drivers have names of their own and cannot be listed here: commands that
// could run one do so in a git directory of ours (see makeBase).
var quiet = []string{
	"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat",
	"-c", "core.untrackedCache=false", "-c", "core.splitIndex=false",
	"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "commit.gpgSign=false",
	"-c", "submodule.recurse=false", "-c", "apply.whitespace=nowarn",
}

// git is where and how git commands run.
type git struct {
	m    *Manager
	dir  string // working directory
	env  []string
	held heldLocks // locks that live on while a command does

	reach *reach // what a confined command is granted; nil: it runs as the user

	large *largeFiles // leaves them out of a snapshot; nil takes them
	// bound hears of each file that a snapshot is about to read, and its size in bytes;
	// its error ends the snapshot. Nil takes all.
	bound func(path string, size int64) error
	// believed says that a file is unchanged which looks so beside the index (see
	// believe).
	believed bool
}

// gitError is a git command that failed.
type gitError struct {
	args   []string
	code   int // exit code, -1 when it did not exit by itself
	stderr string
	err    error
}

func (e *gitError) Error() string {
	what := "git " + strings.Join(e.args, " ")
	if e.stderr != "" {
		return what + ": " + e.stderr
	}
	return what + ": " + e.err.Error()
}

func (e *gitError) Unwrap() error { return e.err }

// with returns a copy of g with more environment variables.
func (g git) with(env ...string) git {
	g.env = append(g.env[:len(g.env):len(g.env)], env...)
	return g
}

// run runs git to its end. Its error is a *gitError or the context's cause.
func (g git) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	if g.believed { // whatever command has written the index last
		if err := believe(g.index()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("git %s: %w", args[0], err)
		}
	}
	cmd := exec.CommandContext(ctx, "git", append(quiet[:len(quiet):len(quiet)], args...)...)
	cmd.Dir, cmd.Env = g.dir, append(gitEnv(os.Environ()), g.env...)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	stderr := &tail{max: 8 << 10}
	cmd.Stderr = stderr
	cmd.ExtraFiles = g.held
	// On SIGTERM git removes its lock files; on SIGKILL it leaves them.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var err error
	if g.reach != nil && g.m.confined != nil {
		err = g.m.confined(ctx, cmd, g.reach.read, g.reach.write)
	} else {
		err = g.m.run(ctx, cmd)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("git %s: %w", args[0], context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("git is not installed or not on PATH; install git %s or newer: %w", MinGit, err)
	}
	code := -1
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	return &gitError{args: args, code: code, stderr: strings.TrimSpace(stderr.String()), err: err}
}

// out returns what git printed, without the last newline.
func (g git) out(ctx context.Context, args ...string) (string, error) {
	var b bytes.Buffer
	err := g.run(ctx, nil, &b, args...)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// list returns what git printed with -z.
func (g git) list(ctx context.Context, args ...string) ([]string, error) {
	var b bytes.Buffer
	if err := g.run(ctx, nil, &b, args...); err != nil || b.Len() == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\x00"), "\x00"), nil
}

// feed runs git with items on its standard input, as -z --stdin wants them.
func (g git) feed(ctx context.Context, items []string, args ...string) error {
	if len(items) == 0 {
		return nil
	}
	return g.run(ctx, strings.NewReader(strings.Join(items, "\x00")+"\x00"), nil, args...)
}

// gitEnv drops every GIT_ variable of the caller, above all those that lead
// to another repository or index, but for where configuration and programs are.
//
// It also forbids every transport. An object that a partial clone lacks would
// otherwise be fetched without being asked for, by programs that the repository
// names (core.sshCommand, remote.*.uploadpack, ext::). GIT_NO_LAZY_FETCH is known
// to git 2.39.4 and newer; GIT_ALLOW_PROTOCOL, a list of protocols none of
// which exists, stops the fetch of older ones.
func gitEnv(env []string) []string {
	keep := make([]string, 0, len(env)+8)
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH":
		case "LC_ALL", "LANGUAGE", "PAGER":
			continue
		default:
			if strings.HasPrefix(name, "GIT_") {
				continue
			}
		}
		keep = append(keep, kv)
	}
	return append(keep, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_EDITOR=true", "GIT_LITERAL_PATHSPECS=1",
		"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none")
}

// checkGit says whether git is there and new enough.
func (m *Manager) checkGit(ctx context.Context) error {
	s, err := git{m: m, dir: "/"}.out(ctx, "version")
	if err != nil {
		return err
	}
	if older(strings.TrimPrefix(s, "git version "), MinGit) {
		return fmt.Errorf("%s is too old; install git %s or newer", s, MinGit)
	}
	return nil
}

// older compares the first two numbers of versions such as "2.39.5 (Apple)".
func older(have, want string) bool {
	h, w := strings.Split(have, "."), strings.Split(want, ".")
	for i := range 2 {
		if i >= len(h) {
			return true
		}
		a, errA := strconv.Atoi(h[i])
		b, errB := strconv.Atoi(w[i])
		if errA != nil || errB != nil {
			return false // an unknown way of counting: let git itself complain
		}
		if a != b {
			return a < b
		}
	}
	return false
}

// head keeps the first max bytes, and refuses more: the writer is to end.
type head struct {
	max  int
	buf  []byte
	more bool
}

func (h *head) Write(p []byte) (int, error) {
	if len(h.buf)+len(p) > h.max {
		h.more = true
		return 0, errors.New("too much")
	}
	h.buf = append(h.buf, p...)
	return len(p), nil
}

// tail keeps the last max bytes: the reason of a failure stands at the end.
type tail struct {
	max int
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - t.max; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
