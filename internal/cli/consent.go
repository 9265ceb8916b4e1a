package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// canAsk reports whether a person is at the terminal who can answer.
func (con *console) canAsk() bool {
	asked, ok := con.stderr.(*os.File)
	return ok && con.stdin != nil && term.IsTerminal(int(con.stdin.Fd())) && term.IsTerminal(int(asked.Fd()))
}

// agree asks a question and reports whether it was answered with yes. No answer is no.
func (con *console) agree(question string) bool {
	fmt.Fprintf(con.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(con.stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// unheld is that runs of a host cannot be held at level standard, and that its operator has not said that they need not be.
type unheld struct {
	why  error
	file string // of the configuration
}

// unheld returns nil if the host can hold runs at level standard, or the configuration says what is to become of them.
func (local *local) unheld(ctx context.Context, cfg *config.Config) *unheld {
	level, least := cfg.Sandbox.Levels()
	if level != job.SandboxStrongest || least == job.SandboxNone || cfg.Sandbox.Reports(local.enforcesSandbox()) {
		return nil
	}
	why := local.prog.standard(ctx)
	if why == nil {
		return nil
	}
	file, err := local.prog.configFile()
	if err != nil {
		file = "the configuration"
	}
	return &unheld{why: why, file: file}
}

// enforcesSandbox reports whether runs are held where the configuration says nothing of that.
func (local *local) enforcesSandbox() bool {
	path, err := local.statePath()
	if err != nil {
		return true
	}
	dir, err := statedir.OpenExisting(path)
	return err != nil || dir.EnforcesSandbox() // one that is made now does
}

// isHeld reports whether a scheduler has the state directory.
func (local *local) isHeld() bool {
	path, err := local.statePath()
	if err != nil {
		return false
	}
	dir, err := statedir.OpenExisting(path)
	return err == nil && dir.Held() != nil
}

func (u *unheld) Error() string {
	what, _ := problemOf(u.why)
	return "this host cannot hold runs at sandbox level standard: " + what
}

// hints say what to do.
func (u *unheld) hints() []string {
	var hints []string
	if _, mend := problemOf(u.why); mend != "" {
		hints = append(hints, "to have a sandbox: "+mend)
	}
	return append(hints, fmt.Sprintf("to allow runs without one: `scheduler doctor --fix` asks and writes it, or write into %s: sandbox: {level: none}", u.file))
}

// problemOf returns what a host does not have, and what mends it.
func problemOf(err error) (what, mend string) {
	if problem, ok := errors.AsType[*sandbox.Problem](err); ok {
		return problem.What, problem.Mend
	}
	return err.Error(), ""
}

// consent has the person at the terminal say whether runs are allowed without a sandbox, on a host that cannot hold them and
// whose configuration says nothing of that; cfg has the answer then. Without a yes it returns why nothing runs.
func (local *local) consent(ctx context.Context, cfg *config.Config) error {
	u := local.unheld(ctx, cfg)
	if u == nil {
		return nil
	}
	if !local.con.canAsk() {
		return usage(u, u.hints()...)
	}
	agreed, err := local.askConsent(u)
	switch {
	case err != nil:
		return usage(err)
	case !agreed:
		return usage(u, u.hints()...)
	}
	cfg.Sandbox.Level = job.SandboxNone
	return nil
}

// askConsent asks, and writes a yes into the configuration.
func (local *local) askConsent(u *unheld) (agreed bool, err error) {
	con := local.con
	fmt.Fprintln(con.stderr, terminal.Clean(u.Error()))
	if _, mend := problemOf(u.why); mend != "" {
		fmt.Fprintln(con.stderr, terminal.Clean("to have a sandbox: "+mend))
	}
	fmt.Fprintln(con.stderr, "Without one an agent may do all that you may: read and change your files, use your logins, reach every host.")
	if !con.agree("Allow runs without a sandbox on this host?") {
		return false, nil
	}
	file, err := local.prog.configFile()
	if err == nil {
		err = local.prog.allowUnheld(file)
	}
	if err != nil {
		return false, fmt.Errorf("write the configuration: %w", err)
	}
	fmt.Fprintf(con.stderr, "written to %s: sandbox: {level: none}\n", terminal.Clean(file))
	return true, nil
}

// serveUnheld is consent for a scheduler that serves. It starts in any case: its runs are refused then, and programs that
// claim jobs themselves need no sandbox of this host.
func (runs *runner) serveUnheld(ctx context.Context) error {
	cfg, err := runs.prog.loadConfig()
	if err != nil {
		return err
	}
	u := runs.local.unheld(ctx, &cfg)
	if u == nil {
		return nil
	}
	if runs.con.canAsk() {
		if agreed, err := runs.local.askConsent(u); err != nil || agreed {
			return err
		}
	}
	fmt.Fprintf(runs.con.stderr, "scheduler: runs are refused: %s\n", terminal.Clean(u.Error()))
	for _, hint := range u.hints() {
		fmt.Fprintf(runs.con.stderr, "hint: %s\n", terminal.Clean(hint))
	}
	return nil
}

// configFile returns the path of the configuration file, which need not be there.
func (prog *program) configFile() (string, error) {
	if prog.configPath != "" {
		return filepath.Abs(prog.configPath)
	}
	return config.DefaultPath()
}

// allowUnheld writes into the configuration file that runs need no sandbox. The file is made if there is none; a symbolic
// link stays one.
func (prog *program) allowUnheld(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s is a symbolic link to a file that is not there", path)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		text, err := config.SetSandboxLevel(path, nil, job.SandboxNone, prog.configOptions())
		if err != nil {
			return err
		}
		return statedir.WriteFile(path, text)
	}
	if err != nil {
		return err
	}
	before, err := os.ReadFile(real)
	if err != nil {
		return err
	}
	text, err := config.SetSandboxLevel(path, before, job.SandboxNone, prog.configOptions())
	if err != nil {
		return err
	}
	return replaceFile(real, text)
}

// replaceFile gives a file another content in one step. Its owner and its mode stay.
func replaceFile(path string, text []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), ".config-*")
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name()) // in vain once it was renamed
	_, err = fresh.Write(text)
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && (int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid()) {
		err = errors.Join(err, fresh.Chown(int(owner.Uid), int(owner.Gid)))
	}
	if err = errors.Join(err, fresh.Chmod(info.Mode().Perm()), fresh.Sync(), fresh.Close()); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), path)
}

// fix offers what mends this host, one thing after the other, and asks at last whether runs are allowed without a sandbox
// if they cannot be held. Nothing is done without a yes.
func (local *local) fix(ctx context.Context) error {
	con, prog := local.con, local.prog
	cfg, err := prog.loadConfig()
	if err != nil {
		return err
	}
	host, asked := prog.host(ctx), false
	for _, level := range []sandbox.Level{sandbox.Strict, sandbox.Standard} {
		problem, ok := errors.AsType[*sandbox.Problem](host.Can(level))
		if !ok {
			continue
		}
		fmt.Fprintf(con.stderr, "sandbox level %s is missing: %s\n", level, terminal.Clean(problem.What))
		command := asRoot(problem.Command)
		switch {
		case problem.Mend == "":
		case command == nil:
			fmt.Fprintf(con.stderr, "to have it: %s\n", terminal.Clean(problem.Mend))
		case !con.canAsk():
			fmt.Fprintf(con.stderr, "to have it: %s\n", terminal.Clean(strings.Join(command, " ")))
		default:
			asked = true
			if problem.Command[0] == "sysctl" {
				fmt.Fprintln(con.stderr, "It changes the kernel's setting for all programs, until the host starts again; a file in /etc/sysctl.d keeps it.")
			}
			if !con.agree("Run `" + strings.Join(command, " ") + "`?") {
				continue
			}
			if err := con.runVisibly(ctx, command); err != nil {
				fmt.Fprintf(con.stderr, "scheduler: %s: %v\n", strings.Join(command, " "), err)
				continue
			}
			if host = prog.host(ctx); host.Can(level) == nil {
				fmt.Fprintf(con.stderr, "this host has sandbox level %s now\n", level)
			} else {
				fmt.Fprintf(con.stderr, "sandbox level %s is still missing: %v\n", level, host.Can(level))
			}
		}
	}
	u := local.unheld(ctx, &cfg)
	switch {
	case u == nil && !asked:
		fmt.Fprintln(con.stderr, "there is nothing to ask")
		return nil
	case u == nil:
		return nil
	case !con.canAsk():
		return usage(u, u.hints()...)
	}
	agreed, err := local.askConsent(u)
	if err == nil && !agreed {
		fmt.Fprintf(con.stderr, "nothing was changed and runs are refused; %s\n", terminal.Clean(strings.Join(u.hints(), "; ")))
	}
	return usageIf(err)
}

func usageIf(err error) error {
	if err == nil {
		return nil
	}
	return usage(err)
}

// asRoot returns the command as this user runs it; nil if there is no way.
func asRoot(command []string) []string {
	if len(command) == 0 || os.Geteuid() == 0 {
		return command
	}
	if _, err := exec.LookPath("sudo"); err != nil {
		return nil
	}
	return append([]string{"sudo"}, command...)
}

// runVisibly runs a command at the terminal.
func (con *console) runVisibly(ctx context.Context, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = con.stdin, con.stderr, con.stderr, con.environ
	return cmd.Run()
}
