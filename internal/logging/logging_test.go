package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// lines are JSON lines that were written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns "component level message" of each line since the last time.
func (l *lines) take(t *testing.T) []string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for line := range strings.Lines(l.text.String()) {
		var said struct{ Component, Level, Message, Time string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		list = append(list, strings.TrimSpace(said.Component+" "+said.Level+" "+said.Message))
	}
	l.text.Reset()
	return list
}

func must(t *testing.T, o Options) *Logs {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Levels are those of the component, and change for loggers that are in use.
func TestLevels(t *testing.T) {
	var file lines
	l := must(t, Options{Level: Warn, Levels: map[Component]Level{API: Debug, Hooks: Off}, File: &file})
	scheduler, api, hooks := l.For(Scheduler), l.For(API).With().Str("method", "GET").Logger(), l.For(Hooks)
	all := func() {
		for _, log := range []zerolog.Logger{scheduler, api, hooks} {
			log.Debug().Msg("d")
			log.Info().Msg("i")
			log.Warn().Msg("w")
			log.Error().Msg("e")
		}
	}
	all()
	same(t, "at first", file.take(t), "scheduler warn w", "scheduler error e", "api debug d", "api info i", "api warn w", "api error e")
	if err := l.SetLevels(Error, map[Component]Level{Scheduler: Info}); err != nil {
		t.Fatal(err)
	}
	all()
	same(t, "later", file.take(t), "scheduler info i", "scheduler warn w", "scheduler error e", "api error e", "hooks error e")
	if l.Level(Scheduler) != Info || l.Level(API) != Error {
		t.Errorf("got %s and %s", l.Level(Scheduler), l.Level(API))
	}
	if api.Debug().Enabled() {
		t.Error("a line that is not written is put together")
	}
	err := l.SetLevels("loud", map[Component]Level{API: "quiet"})
	if err == nil || !strings.Contains(err.Error(), `"loud" is no level of log lines, want one of debug, info, warn, error, off`) || !strings.Contains(err.Error(), `component api: "quiet"`) {
		t.Errorf("got %v", err)
	}
	if l.Level(Scheduler) != Info {
		t.Error("levels that are refused were put in force")
	}
}

// Every component can be told apart, and every level read back.
func TestNames(t *testing.T) {
	var file lines
	l := must(t, Options{File: &file})
	for _, c := range Components() {
		log := l.For(c)
		log.Info().Msg("x")
		same(t, "component", file.take(t), string(c)+" info x")
	}
	for _, level := range Levels() {
		if got, err := ParseLevel(string(level)); err != nil || got != level {
			t.Errorf("%s: got %s, %v", level, got, err)
		}
	}
	for _, not := range []string{"", "INFO", "1", "trace", "disabled"} {
		if got, err := ParseLevel(not); err == nil {
			t.Errorf("%q is taken for %s", not, got)
		}
	}
}

func TestForms(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	const object = `{"level":"warn","process":"scheduler","component":"api","pid":%d,"job":"j1","time":"2026-01-02T03:04:05Z","message":"it is \"late\""}` + "\n"
	const console = "2026-01-02 03:04:05 WRN api it is \"late\" job=j1\n"
	t.Setenv("TZ", "UTC")
	for _, tt := range []struct {
		format Format
		want   string
	}{{JSON, fmt.Sprintf(object, os.Getpid())}, {Auto, fmt.Sprintf(object, os.Getpid())}, {"", fmt.Sprintf(object, os.Getpid())}, {Console, console}} {
		var out, file bytes.Buffer
		l := must(t, Options{Format: tt.format, Out: &out, File: &file, Now: now})
		log := l.For(API)
		log.Warn().Str("job", "j1").Msg(`it is "late"`)
		l.Close()
		l.Close()
		if out.String() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.format, out.String(), tt.want)
		}
		if want := fmt.Sprintf(object, os.Getpid()); file.String() != want {
			t.Errorf("%s: the file has %q, want %q", tt.format, file.String(), want)
		}
		log.Warn().Msg("after the end")
		if !strings.HasSuffix(file.String(), "after the end\"}\n") || strings.Contains(out.String(), "after the end") {
			t.Errorf("%s: after the end the file has %q and the stream %q", tt.format, file.String(), out.String())
		}
	}
	if _, err := New(Options{Format: "xml", Out: io.Discard}); err == nil || err.Error() != `log format "xml" is unknown, want one of auto, json, console` {
		t.Errorf("got %v", err)
	}
}

// What is taken out does not reach any output, nor what was never written by us.
func TestRedact(t *testing.T) {
	var out, file bytes.Buffer
	l := must(t, Options{Format: Console, Out: &out, File: &file, Redact: func(w io.Writer) io.Writer { return redacting{w} }})
	log := l.For(API)
	log.Warn().Str("key", "hunter2").Err(errors.New("hunter2 is wrong")).Msg("hunter2")
	io.WriteString(l.CoreLines(), `{"level":"info","key":"hunter2","message":"core"}`+"\n")
	io.WriteString(l.CoreLines(), "panic: hunter2\n")
	l.Close()
	for name, text := range map[string]string{"stream": out.String(), "file": file.String()} {
		if strings.Contains(text, "hunter2") || strings.Count(text, "\n") != 3 || strings.Count(text, "***") != 5 {
			t.Errorf("the %s has %q", name, text)
		}
	}
}

type redacting struct{ to io.Writer }

func (r redacting) Write(p []byte) (int, error) {
	_, err := r.to.Write(bytes.ReplaceAll(p, []byte("hunter2"), []byte("***")))
	return len(p), err
}

func TestCoreLines(t *testing.T) {
	var file lines
	l := must(t, Options{Level: Info, File: &file})
	core := l.CoreLines()
	for _, line := range []string{
		`{"level":"debug","message":"d"}`, `{"level":"info","process":"agentcore","message":"i"}`, `{}`, `{ }`, `{"level":"warn","component":"watchdog","message":"own"}`,
		"goroutine 1 [running]:", `{"level":"info","message":"torn`, "", `["a"]`,
	} {
		if n, err := io.WriteString(core, line+"\n"); err != nil || n != len(line)+1 {
			t.Errorf("%s: %d, %v", line, n, err)
		}
	}
	same(t, "info", file.take(t), "core info i", "core", "core", "watchdog warn own", "core warn goroutine 1 [running]:", `core warn {"level":"info","message":"torn`, `core warn ["a"]`)
	if err := l.SetLevels(Debug, map[Component]Level{Core: Error}); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"warn", "error", "panic"} {
		fmt.Fprintf(core, `{"level":%q,"message":"m"}`+"\n", level)
	}
	same(t, "error", file.take(t), "core error m", "core panic m")

	// The supervisor gives on at once what came at once.
	at := `{"level":"error","message":"one"}` + "\n" + "goroutine 1 [running]:\n\n" + `{"level":"error","message":"two"}` + "\n"
	if n, err := io.WriteString(core, at); err != nil || n != len(at) {
		t.Errorf("several lines: %d, %v", n, err)
	}
	same(t, "at once", file.take(t), "core error one", "core error two")
}

// Lines of many writers come whole.
func TestWhole(t *testing.T) {
	var file, out lines
	l := must(t, Options{File: &file, Out: &out})
	core := l.CoreLines()
	var writing sync.WaitGroup
	for n := range 8 {
		log := l.For(Components()[n])
		writing.Go(func() {
			for range 100 {
				log.Info().Str("text", strings.Repeat("x", 5000)).Msg("own")
				io.WriteString(core, `{"level":"info","message":"core"}`+"\n")
			}
		})
	}
	writing.Wait()
	l.Close()
	if a, b := file.take(t), out.take(t); len(a) != 1600 || len(b) != 1600 {
		t.Errorf("the file has %d lines and the stream %d, want 1600 each", len(a), len(b))
	}
}

// gate is a stream whose reader stops reading.
type gate struct {
	open chan struct{}
	lines
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.lines.Write(p)
}

// A stream that nobody reads holds nobody up, and says later what is missing.
func TestBlockedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file lines
		g := &gate{open: make(chan struct{})}
		l := must(t, Options{File: &file, Out: g})
		log := l.For(Scheduler)
		log.Info().Msg("held")
		synctest.Wait() // the stream's writer holds it
		const more = 10
		for range streamLines + more {
			log.Info().Msg("m")
		}
		if n := len(file.take(t)); n != streamLines+more+1 {
			t.Errorf("the file has %d lines", n)
		}
		start := time.Now()
		close(g.open)
		synctest.Wait()
		log.Info().Msg("last")
		l.Close()
		got := g.take(t)
		if len(got) != streamLines+3 || !strings.HasPrefix(got[len(got)-2], fmt.Sprintf("daemon warn %d lines are missing here", more)) || got[len(got)-1] != "scheduler info last" {
			t.Errorf("the stream has %d lines, the last of them %q", len(got), got[len(got)-2:])
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := must(t, Options{Out: g})
		log := l.For(Scheduler)
		log.Info().Msg("held")
		start := time.Now()
		l.Close()
		if took := time.Since(start); took != flushTime {
			t.Errorf("waited %s for a stream that does not read, want %s", took, flushTime)
		}
		close(g.open)
	})
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scheduler.log")
	f, err := OpenFile(path, 100, 2)
	if err != nil {
		t.Fatal(err)
	}
	line := func(n int) string { return fmt.Sprintf("%02d%s\n", n, strings.Repeat("-", 37)) } // 40 bytes
	for n := range 9 {
		if _, err := io.WriteString(f, line(n)); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name, want string) {
		t.Helper()
		got, err := os.ReadFile(path + name)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	has("", line(8))
	has(".1", line(6)+line(7))
	has(".2", line(4)+line(5))
	if _, err := os.Stat(path + ".3"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one more is kept: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
	// A line longer than a file has one of its own.
	long := strings.Repeat("x", 150) + "\n"
	io.WriteString(f, long)
	has("", long)
	// It goes on where it was, and one that somebody removed begins anew.
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFile(path, 200, 2); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	io.WriteString(f, line(1))
	has("", long+line(1))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	io.WriteString(f, line(2))
	has("", line(2))
}

// A file that cannot be put aside grows, says so, and loses nothing.
func TestFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scheduler.log")
	f, err := OpenFile(path, 100, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 59) + "\n"
	for range 4 {
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || strings.Count(string(got), text) != 4 || !strings.Contains(string(got), "the log cannot be put aside") {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := OpenFile(filepath.Join(path, "below"), 0, 0); err == nil || !strings.HasPrefix(err.Error(), "open the log: ") {
		t.Errorf("got %v", err)
	}
}
