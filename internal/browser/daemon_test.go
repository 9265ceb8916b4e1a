package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/client"
)

type obj = map[string]any

const (
	startWithin = time.Minute
	stopWithin  = time.Minute
)

// daemon is a `scheduler serve` with a state directory, a home and a git repository
// of its own. It is stopped when the test ends, and killed if it does not stop.
type daemon struct {
	t      *testing.T
	dir    string // everything it touches
	state  string
	repo   string // git repository, branch main, one commit: README.md
	config obj
	env    []string
	api    *client.Client

	cmd  *exec.Cmd
	ran  []process // all that were started
	over chan error
	said *bytes.Buffer // standard error of the last start
}

// newDaemon prepares one that is not yet started.
func newDaemon(t *testing.T, node string) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "br") // short: a socket's name has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, state: filepath.Join(dir, "s"), repo: filepath.Join(dir, "repo")}
	t.Cleanup(d.close)
	puppet, err := filepath.Abs(filepath.Join("testdata", "puppet.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	d.config = obj{
		"api":         obj{"listen": freeAddress(t)},
		"concurrency": obj{"max": 8},
		"workers": obj{
			"puppet": obj{"adapter": "exec", "command": []string{node, puppet}},
			"chat":   obj{"adapter": "exec", "command": []string{filepath.Join(programs, "chat")}},
		},
		"stop":  obj{"interrupt": "500ms", "terminate": "500ms", "kill": "10s"},
		"retry": obj{"base": "50ms", "max": "200ms"},
	}
	for _, sub := range []string{"home", "tmp", "repo", "s"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + filepath.Join(dir, "tmp"), "LANG=C.UTF-8", "AGENTSCHED_SANDBOX__WRITE=" + dir}
	if err := os.WriteFile(filepath.Join(d.repo, "README.md"), []byte("a repository\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "start"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = d.repo, d.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	return d
}

// freeAddress returns an address of loopback at which nobody listens: the daemon must
// come back to the same one. Its port is below those that systems hand out by
// themselves, to connections of the browser too.
func freeAddress(t *testing.T) string {
	t.Helper()
	for i := range 1000 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+(os.Getpid()+i)%10000))
		if err != nil {
			continue
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		return ln.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

func (d *daemon) url() string { return "http://" + d.config["api"].(obj)["listen"].(string) }

func (d *daemon) configFile() string { return filepath.Join(d.dir, "config.yaml") }

// start starts it and returns when it is ready.
func (d *daemon) start() error {
	text, err := json.Marshal(d.config) // JSON is YAML
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.configFile(), text, 0o600); err != nil {
		return err
	}
	d.said, d.over = &bytes.Buffer{}, make(chan error, 1)
	d.cmd = exec.Command(schedulerProgram(), "--state", d.state, "--config", d.configFile(), "serve")
	d.cmd.Env, d.cmd.Dir, d.cmd.Stderr = d.env, d.dir, d.said
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.ran = append(d.ran, identify(d.cmd.Process.Pid))
	over := d.over
	cmd := d.cmd
	go func() { over <- cmd.Wait(); close(over) }()
	if d.api == nil {
		d.api = client.New(filepath.Join(d.state, "scheduler.sock"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	for {
		if h, err := d.api.Ready(ctx); err == nil && h.OK {
			return nil
		}
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-again.C:
		case err := <-d.over:
			d.cmd = nil
			return fmt.Errorf("scheduler serve has ended: %w\n%s", err, d.said)
		case <-ctx.Done():
			return fmt.Errorf("scheduler serve is not ready after %s", startWithin)
		}
	}
}

// kill kills it as it is.
func (d *daemon) kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return err
	}
	<-d.over
	d.cmd = nil
	return nil
}

// stop stops it in order.
func (d *daemon) stop() error {
	if d.cmd == nil {
		return nil
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	select {
	case err := <-d.over:
		d.cmd = nil
		if err != nil {
			return fmt.Errorf("scheduler serve: %w\n%s", err, d.said)
		}
		return nil
	case <-late.C:
		return errors.Join(fmt.Errorf("scheduler serve did not stop within %s", stopWithin), d.kill())
	}
}

func (d *daemon) close() {
	tree := descendants(d.ran...)
	if err := d.stop(); err != nil {
		d.t.Error(err)
	}
	if d.api != nil {
		d.api.Close()
	}
	gone(d.t, append(tree, d.ran...))
	if d.t.Failed() {
		if text, err := os.ReadFile(filepath.Join(d.state, "scheduler.log")); err == nil {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			d.t.Logf("the end of scheduler.log:\n%s", strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Error(err)
	}
}

// world is what a script is told of it.
func (d *daemon) world() obj {
	return obj{"url": d.url(), "scheduler": schedulerProgram(), "state": d.state, "config": d.configFile(), "repo": d.repo, "dir": d.dir, "env": d.env}
}
