package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const playWithin = 6 * time.Minute

// browser is the node process with one Chromium. It plays one script at a time.
type browser struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   chan message // closed when the process has closed its standard output
	errs  bytes.Buffer
	ready message
}

// message is a line of the process: it asks for something, or a script is over.
type message struct {
	Ready   string         `json:"ready"` // the browser's version
	Ask     string         `json:"ask"`
	Args    map[string]any `json:"args"`
	Done    bool           `json:"done"`
	Error   string         `json:"error"`   // what failed, and in which step
	Steps   []string       `json:"steps"`   // what was done, each with its duration
	Console []string       `json:"console"` // what the page said
	Figures []string       `json:"figures"`
}

// openBrowser starts one, which ends with the test.
func openBrowser(t *testing.T, have tools) *browser {
	t.Helper()
	dir, err := os.MkdirTemp("", "brc")
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, out: make(chan message)}
	b.cmd = exec.Command(have.node, filepath.Join("testdata", "driver.mjs"))
	b.cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir,
		"BROWSER_CHROMIUM="+have.chromium, "BROWSER_MODULES="+have.modules, "BROWSER_SCREENSHOTS="+have.screenshots)
	b.cmd.Stderr = &b.errs
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go b.read(out)
	t.Cleanup(func() { b.close(dir) })
	b.ready = b.next()
	if b.ready.Ready == "" {
		t.Fatalf("the browser did not start: %+v\n%s", b.ready, &b.errs)
	}
	return b
}

func (b *browser) read(out io.Reader) {
	defer close(b.out)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			m = message{Done: true, Error: fmt.Sprintf("the driver said %q: %v", lines.Text(), err)}
		}
		b.out <- m
	}
}

func (b *browser) next() message {
	late := time.NewTimer(playWithin)
	defer late.Stop()
	select {
	case m, ok := <-b.out:
		if !ok {
			return message{Done: true, Error: "the driver has ended\n" + b.errs.String()}
		}
		return m
	case <-late.C:
		return message{Done: true, Error: fmt.Sprintf("the driver has said nothing for %s", playWithin)}
	}
}

func (b *browser) say(v any) {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = b.in.Write(append(line, '\n'))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// play has a script's function play on a daemon, whose kill and start it may ask for.
func (b *browser) play(t *testing.T, d *daemon, name string, args obj) {
	t.Helper()
	b.say(obj{"play": name, "world": d.world(), "args": args})
	for {
		m := b.next()
		if m.Done {
			for _, f := range m.Figures {
				t.Log(f)
			}
			if m.Error != "" {
				t.Errorf("%s\nsteps:\n  %s\nconsole:\n  %s", m.Error, strings.Join(m.Steps, "\n  "), strings.Join(m.Console, "\n  "))
			} else if testing.Verbose() {
				t.Log(strings.Join(m.Steps, "; "))
			}
			return
		}
		var err error
		switch m.Ask {
		case "kill":
			err = d.kill()
		case "start":
			err = d.start()
		default:
			err = fmt.Errorf("nobody knows how to %q", m.Ask)
		}
		answer := obj{"answer": true}
		if err != nil {
			answer = obj{"error": err.Error()}
		}
		b.say(answer)
	}
}

// close ends the browser: its standard input's end is the word for it.
func (b *browser) close(dir string) {
	own := identify(b.cmd.Process.Pid)
	tree := append(descendants(own), own)
	b.in.Close()
	stuck := time.AfterFunc(stopWithin, func() { _ = b.cmd.Process.Kill() })
	for range b.out { // to its end, so that the reader ends
	}
	err := b.cmd.Wait()
	stuck.Stop()
	if err != nil {
		b.t.Errorf("node: %v\n%s", err, &b.errs)
	}
	gone(b.t, tree)
	if err := os.RemoveAll(dir); err != nil {
		b.t.Error(err)
	}
}
