package supervisor

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/ipc"
)

func TestCrashLoop(t *testing.T) {
	start := time.Now()
	type crash struct {
		at, lived time.Duration
		isolate   time.Duration
	}
	for _, tc := range []struct {
		name    string
		crashes []crash
	}{
		{"seldom", []crash{{0, 0, 0}, {31 * time.Second, 0, 0}, {62 * time.Second, 0, 0}, {93 * time.Second, 0, 0}}},
		{"as often as it may", []crash{{0, 0, 0}, {time.Second, 0, 0}}},
		{"more often", []crash{{0, 0, 0}, {time.Second, 0, 0}, {60 * time.Second, 0, 10 * time.Second}}},
		{"the first is long ago", []crash{{0, 0, 0}, {time.Second, 0, 0}, {61 * time.Second, 0, 0}}},
		{"again and again", []crash{
			{0, 0, 0}, {1, 0, 0}, {2, 0, 10 * time.Second}, {11 * time.Second, 0, 20 * time.Second},
			{32 * time.Second, 0, 35 * time.Second}, {68 * time.Second, 0, 35 * time.Second},
		}},
		{"after a long life", []crash{
			{0, 0, 0}, {1, 0, 0}, {2, 0, 10 * time.Second}, {11 * time.Second, 0, 20 * time.Second},
			{time.Hour, 60 * time.Second, 0}, {time.Hour + 1, 0, 0}, {time.Hour + 2, 0, 10 * time.Second},
		}},
		{"after a life that was not long enough", []crash{
			{0, 0, 0}, {1, 0, 0}, {2, 0, 10 * time.Second},
			{70 * time.Second, 59 * time.Second, 0}, {70*time.Second + 1, 0, 0}, {70*time.Second + 2, 0, 20 * time.Second},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := crashLoop{Intensity: Intensity{Count: 2, Within: time.Minute, Isolate: 10 * time.Second, MaxIsolate: 35 * time.Second}}
			for i, c := range tc.crashes {
				if got := l.crashed(start.Add(c.at), c.lived); got != c.isolate {
					t.Errorf("crash %d: isolated for %s, want %s", i+1, got, c.isolate)
				}
			}
		})
	}
	t.Run("forgiven", func(t *testing.T) {
		l := crashLoop{Intensity: Intensity{Count: 1}.withDefaults()}
		for range 2 {
			l.crashed(start, 0)
			if got := l.crashed(start, 0); got != 30*time.Second {
				t.Errorf("isolated for %s", got)
			}
			l.forgive()
		}
	})
}

func TestHealth(t *testing.T) {
	start := time.Now()
	cfg := Config{MaxRSS: 1 << 30, MaxCPU: 0.5, CPUFor: 3 * time.Second, SlowHeartbeat: 100 * time.Millisecond}
	type beat struct {
		took    time.Duration
		rss     int64
		cpu     time.Duration // since the last
		why     string        // part of the complaint; "" means none
		urgent  bool
		pulse   float64
		unknown bool
	}
	quick, slow := time.Millisecond, 101*time.Millisecond
	for _, tc := range []struct {
		name  string
		beats []beat
	}{
		{"well", []beat{{took: quick, rss: 1 << 30}, {took: 100 * time.Millisecond, rss: -1}, {took: quick}}},
		{"memory", []beat{{took: quick, rss: 1<<30 + 1<<29, why: "1536.0 MiB of memory, more than 1024.0 MiB", urgent: true}}},
		{"slow, but not in a row", []beat{{took: slow}, {took: slow}, {took: quick}, {took: slow}, {took: slow}, {took: quick}}},
		{"slow", []beat{{took: slow}, {took: slow}, {took: slow, why: "3 heartbeats in a row"}, {took: slow, why: "4 heartbeats"}, {took: quick}}},
		{"memory matters more", []beat{{took: slow}, {took: slow}, {took: slow, rss: 1 << 31, why: "memory", urgent: true}}},
		{"a CPU for a while", []beat{{took: quick}, {cpu: time.Second, pulse: 1}, {cpu: time.Second / 2, pulse: 0.5}, {cpu: 0}, {cpu: 0}}},
		{"a CPU for too long", []beat{{took: quick}, {cpu: time.Second, pulse: 1}, {cpu: time.Second, pulse: 1},
			{cpu: time.Second, pulse: 1, why: "1.00 of a CPU over 3s, more than 0.50"}, {cpu: 0, why: "0.67 of a CPU"}, {cpu: 0}}},
		{"a CPU of which nothing is known", []beat{{unknown: true}, {unknown: true}, {unknown: true}, {unknown: true}, {unknown: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := health{cfg: &cfg}
			var cpu time.Duration
			for i, b := range tc.beats {
				cpu += b.cpu
				r := ipc.HeartbeatResult{RSSBytes: b.rss, CPUMS: cpu.Milliseconds()}
				if b.unknown {
					r.CPUMS = -1
				}
				p, c := h.beat(start.Add(time.Duration(i)*time.Second), b.took, r)
				switch {
				case (c != nil) != (b.why != ""):
					t.Errorf("beat %d: got %v, want %q", i+1, c, b.why)
				case c != nil && (!strings.Contains(c.why, b.why) || c.urgent != b.urgent):
					t.Errorf("beat %d: got %+v, want %q", i+1, *c, b.why)
				}
				if want := (pulse{b.took, b.rss, b.pulse}); p != want {
					t.Errorf("beat %d: pulse %+v, want %+v", i+1, p, want)
				}
			}
		})
	}
	t.Run("without limits", func(t *testing.T) {
		h := health{cfg: &Config{CPUFor: time.Second}}
		for i := range 10 {
			at := start.Add(time.Duration(i) * time.Second)
			if _, c := h.beat(at, time.Hour, ipc.HeartbeatResult{RSSBytes: 1 << 60, CPUMS: int64(i) * 9000}); c != nil {
				t.Errorf("got %+v", *c)
			}
		}
	})
}

// pieces hands out a text in pieces of odd sizes.
type pieces struct{ text string }

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 7)], p.text)
	p.text = p.text[n:]
	return n, nil
}

func TestOwnTime(t *testing.T) {
	late := errors.New("late")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := withOwnTime(t.Context(), 10*time.Second, late)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took != 10*time.Second || context.Cause(ctx) != late {
			t.Errorf("it ended after %s with %v", took, context.Cause(ctx))
		}
		ctx, cancel = withOwnTime(t.Context(), 10*time.Second, late)
		time.Sleep(9 * time.Second)
		cancel()
		if time.Sleep(time.Minute); context.Cause(ctx) != context.Canceled {
			t.Errorf("cancelled in time, it ended with %v", context.Cause(ctx))
		}
	})
}

func TestStderrLog(t *testing.T) {
	const logged = `{"level":"info"}` + "\n"
	const dump = "panic: oh no\n\ngoroutine 7 [running]:\nmain.f()\n\t/x.go:1\n"
	for _, tc := range []struct {
		name, text              string
		lastWords, tail, dumped string
	}{
		{"nothing", "", "", "", ""},
		{"only its log", logged + logged, "", logged + logged, ""},
		{"no core", "usage: ls\nno such option\n", "usage: ls | no such option", "usage: ls\nno such option\n", ""},
		{"an unfinished line", logged + "oops", "oops", logged + "oops\n", ""},
		{"a panic", logged + dump, "panic: oh no", logged, dump},
		{"a log line in between", "panic: oh no\n" + logged + "goroutine 7 [running]:\n", "panic: oh no", logged, "panic: oh no\ngoroutine 7 [running]:\n"},
		{"a dump that was asked for", "SIGQUIT: quit\nPC=0x1 m=0\n", "SIGQUIT: quit", "", "SIGQUIT: quit\nPC=0x1 m=0\n"},
		{"what the runtime says first", "runtime: goroutine stack exceeds 1000000000-byte limit\nfatal error: stack overflow\n",
			"runtime: goroutine stack exceeds 1000000000-byte limit", "", "runtime: goroutine stack exceeds 1000000000-byte limit\nfatal error: stack overflow\n"},
		{"what the runtime says besides", "runtime: by the way\n" + logged + dump, "panic: oh no", logged, dump},
		{"and nothing more", "runtime: by the way\n" + logged, "", logged, ""},
		{"words about panic", "do not panic: it is well\n", "do not panic: it is well", "do not panic: it is well\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l stderrLog
			var out strings.Builder
			l.copy(&pieces{tc.text}, &out)
			if want := tc.text[:strings.LastIndexByte(tc.text, '\n')+1]; out.String() != want {
				t.Errorf("copied %q, want %q", out.String(), want)
			}
			if l.lastWords() != tc.lastWords || l.tail() != tc.tail || l.dump() != tc.dumped {
				t.Errorf("last words %q, tail %q, dump %q", l.lastWords(), l.tail(), l.dump())
			}
		})
	}
	t.Run("bounds", func(t *testing.T) {
		var l stderrLog
		noise := strings.Repeat(logged, 5000)
		first := "panic: " + strings.Repeat("x", 1<<19) + "\n"
		goroutine := "goroutine 7 [running]:\n" + strings.Repeat("main.f(...)\n", 100)
		l.copy(strings.NewReader(noise+first+goroutine+strings.Repeat("goroutine 8 [idle]:\n", 50_000)+strings.Repeat("y", 3<<20)), nil)
		if len(l.tail()) != tailSize || len(l.dump()) != dumpSize {
			t.Errorf("tail %d, dump %d bytes", len(l.tail()), len(l.dump()))
		}
		if !strings.HasPrefix(l.dump(), first[:dumpLine]) || !strings.Contains(l.dump(), goroutine) {
			t.Errorf("the first goroutine is cut: %.100q", l.dump()[dumpLine:])
		}
	})
}
