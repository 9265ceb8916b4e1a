package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestScreen(t *testing.T) {
	rows := func(w io.Writer) {
		fmt.Fprintln(w, "fix\tcompleted\tthe first")
		fmt.Fprintln(w, "größe-漢\tfailed\tsome long reason for which it has failed")
		fmt.Fprintln(w, "x\tpending\t")
	}
	for name, c := range map[string]struct {
		w    *screen
		want string
	}{
		"colour": {&screen{colour: true}, "\x1b[1mJOB      STATE      NOTE\x1b[m\nfix      \x1b[32mcompleted\x1b[m  the first\n" +
			"größe-漢  \x1b[31mfailed\x1b[m     some long reason for which it has failed\nx        \x1b[2mpending\x1b[m    \n"},
		"width": {&screen{width: 30}, "JOB      STATE      NOTE\nfix      completed  the first\ngröße-漢  failed     some lon…\nx        pending\n"},
		"both":  {&screen{width: 12, colour: true}, "\x1b[1mJOB      ST…\x1b[m\nfix      co…\ngröße-漢  f…\nx        pe…\n"},
	} {
		var out bytes.Buffer
		c.w.Writer = &out
		if err := table(c.w, "JOB\tSTATE\tNOTE", rows); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s:\n%q, want\n%q", name, out.String(), c.want)
		}
		if w := c.w.width; w > 0 && !c.w.colour {
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(line)) - 1; n > w {
					t.Errorf("%s: %d characters in %q", name, n, line)
				}
			}
		}
	}
	// What is piped has not a byte more.
	var piped, plain bytes.Buffer
	m := &Main{stdout: &piped, getenv: func(string) string { return "" }}
	if err := table(m.out(), "JOB\tSTATE\tNOTE", rows); err != nil {
		t.Fatal(err)
	}
	if err := alignedTable(&plain, "JOB\tSTATE\tNOTE", rows); err != nil {
		t.Fatal(err)
	}
	if piped.String() != plain.String() {
		t.Errorf("piped: %q, want %q", piped.String(), plain.String())
	}
}

func TestColourModes(t *testing.T) {
	for _, c := range []struct {
		mode, noColour string
		want           bool
	}{{"auto", "", false}, {"always", "", true}, {"always", "1", true}, {"never", "", false}} {
		var mode colourMode
		if err := mode.Set(c.mode); err != nil {
			t.Fatal(err)
		}
		m := &Main{getenv: func(name string) string { return map[string]string{"NO_COLOR": c.noColour}[name] }}
		m.color = mode
		if got := m.colour(nil); got != c.want {
			t.Errorf("--color=%s NO_COLOR=%s: %v, want %v", c.mode, c.noColour, got, c.want)
		}
	}
	if err := new(colourMode).Set("purple"); err == nil || !strings.Contains(err.Error(), "auto, always or never") {
		t.Errorf("purple: %v", err)
	}
}
