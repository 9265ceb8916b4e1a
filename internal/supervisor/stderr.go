package supervisor

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
)

// stderrLog copies a core's standard error on, and keeps for the report of its
// end what it logged last, and its crash dump apart from that.
type stderrLog struct {
	mu    sync.Mutex // guards what follows
	last  []byte     // the end of all but the dump
	crash []byte     // the dump, from its first line on
	weak  bool       // crash began with a line that may be no crash
}

const (
	tailSize = 16 << 10  // of what is kept beside the dump
	dumpSize = 256 << 10 // of the dump: its beginning, with the goroutine that crashed
	dumpLine = 4 << 10   // of a line of it: a panic's value can be of any size
	lineSize = 1 << 20   // a line without an end is no log line
)

var (
	// dumpStart is how the Go runtime begins to say that it ends the program.
	dumpStart = regexp.MustCompile(`^(panic: |fatal error: |SIG[A-Z0-9]+: |unexpected fault address )`)
	// dumpHint comes before some of these, and alone when nothing happened.
	dumpHint = regexp.MustCompile(`^(runtime: |\[signal )`)
)

// copy reads to the end, and gives whole lines to w, if that is set: those at
// once that come at once.
func (t *stderrLog) copy(r io.Reader, w io.Writer) {
	buf := make([]byte, 32<<10)
	var line, lines []byte
	for {
		n, err := r.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			part, after, ended := bytes.Cut(rest, []byte("\n"))
			rest = after
			if line = append(line, part...); !ended && len(line) < lineSize {
				continue
			}
			line = append(line, '\n')
			t.keep(line)
			lines = append(lines, line...)
			line = line[:0]
		}
		if w != nil && len(lines) > 0 {
			w.Write(lines)
		}
		lines = lines[:0]
		if err != nil {
			if len(line) > 0 {
				t.keep(append(line, '\n'))
			}
			return
		}
	}
}

// keep takes one line. The core's log is JSON, one object a line: such a line
// is never part of a dump, though it may come in between.
func (t *stderrLog) keep(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	logged := bytes.HasPrefix(line, []byte("{"))
	switch {
	case logged && t.weak:
		t.crash, t.weak = nil, false // it went on: that was no crash
	case !logged && (len(t.crash) == 0 || t.weak) && dumpStart.Match(line):
		t.weak = false
		t.addDump(line)
		return
	case !logged && len(t.crash) == 0 && dumpHint.Match(line):
		t.weak = true
		t.addDump(line)
		return
	case !logged && len(t.crash) > 0:
		t.addDump(line)
		return
	}
	t.last = append(t.last, line...)
	if extra := len(t.last) - tailSize; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
}

func (t *stderrLog) addDump(line []byte) {
	if len(line) > dumpLine {
		line = append(line[:dumpLine:dumpLine], " […]\n"...)
	}
	t.crash = append(t.crash, line[:min(len(line), dumpSize-len(t.crash))]...)
}

// tail returns the end of what the core printed beside its dump.
func (t *stderrLog) tail() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.last), "\uFFFD")
}

// dump returns the Go crash dump, "" if there is none.
func (t *stderrLog) dump() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.weak {
		return ""
	}
	return strings.ToValidUTF8(string(t.crash), "\uFFFD")
}

// lastWords returns in a line what the core printed last besides its log: what
// went wrong, or what a program says that is no core.
func (t *stderrLog) lastWords() string {
	if first, _, _ := strings.Cut(t.dump(), "\n"); first != "" {
		return first
	}
	var words []string
	for line := range strings.Lines(t.tail()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "{") {
			words = append(words, line)
		}
	}
	const most = 5
	return strings.Join(words[max(0, len(words)-most):], " | ")
}
