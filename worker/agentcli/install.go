package agentcli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tempPrefix begins the names of folders in which npm works. Only the holder
// of the lock makes them, so what is found under the lock is an old one.
const tempPrefix = ".installing-"

// installer works in dir while it holds the lock.
type installer struct {
	dir  string
	npm  string // path of the program
	lock *os.File

	progress func(line string)
	every    time.Duration // between two lines that say how far an install is
	said     *sync.Mutex   // held while progress is called
}

func (in installer) say(format string, args ...any) {
	in.said.Lock()
	defer in.said.Unlock()
	in.progress(fmt.Sprintf(format, args...))
}

// sweep removes what interrupted installs left. What cannot be removed is in
// nobody's way.
func (in installer) sweep() {
	old, _ := filepath.Glob(filepath.Join(in.dir, tempPrefix+"*"))
	for _, dir := range old {
		os.RemoveAll(dir)
	}
}

// all installs the pins at the same time, which takes less than half as long
// as one after the other; those that succeed stay.
func (in installer) all(ctx context.Context, missing []pin) error {
	var bytes int64
	for _, p := range missing {
		bytes += p.Bytes
	}
	what := "1 worker CLI"
	if len(missing) > 1 {
		what = fmt.Sprintf("%d worker CLIs", len(missing))
	}
	in.say("installing %s from npm (%s; about %s) into %s", what, pinNames(missing), sizeText(bytes), in.dir)
	began := time.Now()
	errs := make([]error, len(missing))
	var work sync.WaitGroup
	for i, p := range missing {
		work.Go(func() {
			err := in.one(ctx, p, began)
			if err != nil {
				errs[i] = fmt.Errorf("install %s %s into %s: %w", p.kind, p.Version, in.dir, err)
				return
			}
			in.say("installed %s %s (%s)", p.kind, p.Version, time.Since(began).Round(time.Second))
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

func (in installer) one(ctx context.Context, p pin, began time.Time) error {
	temp, err := os.MkdirTemp(in.dir, tempPrefix+string(p.kind)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	install := filepath.Join(temp, "install")
	defer in.heartbeat(p, install, began)()
	if err := in.install(ctx, p, install); err != nil {
		return err
	}
	if err := in.try(ctx, p, install, filepath.Join(temp, "home")); err != nil {
		return err
	}
	// A damaged install is moved out of the way, into what is removed.
	final := filepath.Join(in.dir, p.folder())
	if err := os.Rename(final, filepath.Join(temp, "old")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Rename(install, final)
}

// install lets npm fill the folder.
func (in installer) install(ctx context.Context, p pin, folder string) error {
	manifest, err := p.manifest()
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "package.json"), manifest, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "package-lock.json"), p.Lock, 0o644); err != nil {
		return err
	}
	// What has another hash than the lockfile says is refused. The last three undo
	// what a user's own npm settings may say: the optional packages hold the native
	// binaries, a global install goes elsewhere, and no package runs a script here.
	cmd := exec.Command(in.npm, "ci", "--no-audit", "--no-fund", "--no-progress", "--loglevel=warn",
		"--ignore-scripts", "--include=optional", "--global=false")
	cmd.Dir = folder
	cmd.Env = append(npmEnv(os.Environ()), "npm_config_update_notifier=false")
	// The lock goes along: if this process dies, npm may write on for a while,
	// and no other install may begin before it has ended.
	cmd.ExtraFiles = []*os.File{in.lock}
	out, err := in.run(ctx, cmd)
	if err != nil {
		return fmt.Errorf("npm ci: %w%s", err, indented(out))
	}
	if p.Script != "" {
		if err := in.script(ctx, p, folder); err != nil {
			return err
		}
	}
	if !p.complete(folder) {
		return fmt.Errorf("npm ci succeeded, but the program %s is missing%s", filepath.Join("node_modules", ".bin", p.Program), indented(out))
	}
	return nil
}

// script runs the package's own script, which links the native binary to where
// the program is looked for. It needs no network: without the package with the
// binary, for which the lockfile has the hash, it must not get one elsewhere.
func (in installer) script(ctx context.Context, p pin, folder string) error {
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("run the package's %s: %w", p.Script, err)
	}
	home := filepath.Join(folder, ".home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(home)
	cmd := exec.Command(node, p.Script)
	cmd.Dir = filepath.Join(folder, "node_modules", filepath.FromSlash(p.Package.Name))
	cmd.Env = append(plainEnv(os.Environ()), "HOME="+home, "TMPDIR="+home, "npm_config_offline=true", "npm_config_cache="+home)
	cmd.ExtraFiles = []*os.File{in.lock}
	if out, err := in.run(ctx, cmd); err != nil {
		return fmt.Errorf("run the package's %s: %w; if this version of the scheduler does not support the program on %s/%s, install it yourself%s",
			p.Script, err, runtime.GOOS, runtime.GOARCH, indented(out))
	}
	return nil
}

// plainVariables are what any program needs; npmVariables besides what npm needs
// to reach the user's registry.
var (
	plainVariables = []string{"PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM"}
	npmVariables   = []string{
		"HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "NPM_TOKEN", "NODE_AUTH_TOKEN",
	}
)

func plainEnv(environ []string) []string {
	var env []string
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(plainVariables, name) || strings.HasPrefix(name, "LC_") {
			env = append(env, kv)
		}
	}
	return env
}

// npmEnv returns what npm gets of the environment: nothing that is not for it.
func npmEnv(environ []string) []string {
	env := plainEnv(environ)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(npmVariables, strings.ToUpper(name)) || strings.HasPrefix(strings.ToLower(name), "npm_config_") {
			env = append(env, kv)
		}
	}
	return env
}

// try runs the program once: a native binary that is missing, or made for
// another system, shows here and not in the middle of a job. It gets a home of
// its own since some write there even to tell their version.
func (in installer) try(ctx context.Context, p pin, install, home string) error {
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	cmd := exec.Command(p.executable(install), "--version")
	cmd.Dir = home
	cmd.Env = plainEnv(os.Environ())
	for _, name := range append([]string{"HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"}, p.FolderVariables...) {
		cmd.Env = append(cmd.Env, name+"="+home)
	}
	out, err := in.run(ctx, cmd)
	if err != nil {
		return fmt.Errorf("the installed program does not run: %s --version: %w%s", p.kind, err, indented(out))
	}
	if !strings.Contains(out, p.Version) {
		return fmt.Errorf("the installed program has the wrong version: %s --version should print %s%s", p.kind, p.Version, indented(out))
	}
	return nil
}

// run runs the command and returns the tail of what it printed.
func (in installer) run(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out // one writer: os/exec copies both in one goroutine
	err := runGroup(ctx, cmd)
	return LastLines(strings.ToValidUTF8(string(out.Bytes()[max(out.Len()-2000, 0):]), "\uFFFD"), 15, nil), err
}

// heartbeat says again and again how far the install is, until the returned
// function is called, which waits for it.
func (in installer) heartbeat(p pin, install string, began time.Time) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(in.every)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				in.say("installing %s %s: %s of about %s (%s)", p.kind, p.Version, sizeText(bytesIn(install)), sizeText(p.Bytes), time.Since(began).Round(time.Second))
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// bytesIn returns how much is in a folder so far.
func bytesIn(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // moved meanwhile
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// indented puts what a program printed below an error message.
func indented(out string) string {
	if out == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(out, "\n", "\n    ")
}

func sizeText(n int64) string {
	if n >= 950e6 {
		return fmt.Sprintf("%.0f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%d MB", (n+5e6)/10e6*10)
}

// pipeGrace is how long output is still read after the command has ended, when
// something that it left behind holds the pipe open.
const pipeGrace = 5 * time.Second

// runGroup runs the command in a process group of its own, which is killed
// when ctx ends. Ctrl-C at a terminal therefore reaches this program alone.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeGrace
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return errors.Join(context.Cause(ctx), <-ended)
	}
}
