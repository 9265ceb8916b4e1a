package watchdog

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the answers in testdata")

// midnight is when every transcript begins.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A player answers the lines of a transcript.
type player interface {
	// play takes one line at its time: a verb, and words with or without "=".
	play(t *testing.T, now time.Time, verb string, words lineWords) []string
}

// transcripts plays every file testdata/NAME-*.txt. A line is a time since the
// beginning, e.g. "1m30s", and what happens then; below it stand, behind an
// arrow, the decisions that follow. With -rewrite they are written anew.
func transcripts(t *testing.T, name string, begin func() player) {
	files, err := filepath.Glob("testdata/" + name + "-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts of %s: %v", name, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := perform(t, string(text), begin())
			if got == string(text) {
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s differs; got:\n%s", file, got)
		})
	}
}

const arrow = "           → "

func perform(t *testing.T, text string, p player) string {
	t.Helper()
	var out strings.Builder
	var last time.Duration
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "→") {
			continue // an answer of the last time
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		at, err := time.ParseDuration(fields[0])
		if err != nil || at < last || len(fields) < 2 {
			t.Fatalf("line %q: want a time that does not go back, and a verb: %v", line, err)
		}
		last = at
		w := lineWords{t: t, line: line, named: map[string]string{}}
		for _, f := range fields[2:] {
			if key, value, ok := strings.Cut(f, "="); ok {
				w.named[key] = value
			} else {
				w.plain = append(w.plain, f)
			}
		}
		for _, answer := range p.play(t, midnight.Add(at), fields[1], w) {
			fmt.Fprintln(&out, arrow+answer)
		}
		for key := range w.named {
			t.Errorf("line %q: %q has no meaning here", line, key)
		}
	}
	return out.String()
}

// lineWords are a line's words behind the verb; a named one is taken out as it is used.
type lineWords struct {
	t     *testing.T
	line  string
	plain []string
	named map[string]string
}

func (w lineWords) text(key string) (string, bool) {
	value, ok := w.named[key]
	delete(w.named, key)
	return value, ok
}

func (w lineWords) duration(key string) (time.Duration, bool) {
	value, ok := w.text(key)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		w.t.Fatalf("line %q: %v", w.line, err)
	}
	return d, true
}

func (w lineWords) number(key string) (int64, bool) {
	value, ok := w.text(key)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		w.t.Fatalf("line %q: %v", w.line, err)
	}
	return n, true
}

// parts reads "3/10".
func (w lineWords) parts(key string) (count, of int64, ok bool) {
	value, ok := w.text(key)
	if !ok {
		return 0, 0, false
	}
	if _, err := fmt.Sscanf(value, "%d/%d", &count, &of); err != nil {
		w.t.Fatalf("line %q: %v", w.line, err)
	}
	return count, of, true
}
