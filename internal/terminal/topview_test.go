package terminal

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// stood returns a topModel that has looked at f once, at topNoon.
func stood(t *testing.T, f *fake, w, h int, opts TopOptions) *topModel {
	t.Helper()
	opts.Now, opts.Zone = func() time.Time { return topNoon }, time.UTC
	m := newTopModel(t.Context(), f, opts)
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	m.Update(m.look()())
	return m
}

func TestTopFrames(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}, {60, 16}, {40, 12}, {24, 6}} {
		name := fmt.Sprintf("busy-%dx%d.txt", size[0], size[1])
		t.Run(name, func(t *testing.T) {
			m := stood(t, &fake{picture: busyPicture()}, size[0], size[1], TopOptions{})
			golden(t, "top/"+name, m.render()+"\n")
		})
	}
	t.Run("colour", func(t *testing.T) {
		m := stood(t, &fake{picture: busyPicture()}, 100, 24, TopOptions{Colour: true, Name: "https://build:7433"})
		golden(t, "top/colour.txt", strings.ReplaceAll(m.render(), "\x1b", "\\e")+"\n")
	})
	t.Run("empty", func(t *testing.T) {
		m := stood(t, &fake{picture: TopPicture{Overview: api.Overview{At: topNoon, Started: topNoon, Version: "1.4.0"}}}, 80, 24, TopOptions{})
		golden(t, "top/empty.txt", m.render()+"\n")
	})
	t.Run("first", func(t *testing.T) {
		m := newTopModel(t.Context(), &fake{}, TopOptions{Now: func() time.Time { return topNoon }})
		golden(t, "top/first.txt", m.render()+"\n")
	})
	t.Run("lost", func(t *testing.T) {
		f := &fake{picture: busyPicture()}
		m := stood(t, f, 100, 24, TopOptions{})
		f.down = errors.New("no scheduler is running on this state directory")
		m.Update(m.look()())
		m.scene.opts.Now = func() time.Time { return topNoon.Add(7 * time.Second) }
		m.Update(brokenMsg{f.down})
		golden(t, "top/lost.txt", m.render()+"\n")
		f.down = nil
		m.Update(m.look()())
		if strings.Contains(m.render(), "no connection") {
			t.Error("it does not know that the scheduler is back")
		}
	})
	t.Run("help", func(t *testing.T) {
		m := stood(t, &fake{picture: busyPicture()}, 80, 24, TopOptions{})
		press(m, "?")
		golden(t, "top/help.txt", m.render()+"\n")
	})
}

// Whatever the size and whatever the texts, a frame fits the terminal and holds
// no control character that is not our own.
func TestTopFramesFit(t *testing.T) {
	p := busyPicture()
	for n := range 60 {
		e := jobOf(20+n, fmt.Sprintf("日本語-\x9b2J-%d", n), "t\u0301\u0301\u0301\u0301", "w", job.Queued)
		e.Waiting = strings.Repeat("\x1b[31mwide 漢字 ", 40)
		p.Jobs = append(p.Jobs, e)
		p.Overview.Tenants = append(p.Overview.Tenants, api.Tenant{Tenant: job.Tenant(fmt.Sprint("t", n)), Queued: n})
		p.Workers = append(p.Workers, api.Worker{Kind: job.WorkerKind(fmt.Sprint("w", n))})
	}
	for _, keys := range []string{"", "?", "/", "p", "l", "G"} {
		m := stood(t, &fake{picture: p}, 80, 24, TopOptions{})
		press(m, keys)
		for w := 1; w < 230; w += 23 {
			for h := 1; h < 70; h += 6 {
				m.Update(tea.WindowSizeMsg{Width: w, Height: h})
				lines := strings.Split(m.render(), "\n")
				if len(lines) > max(h, 2) {
					t.Fatalf("%q %dx%d: %d lines", keys, w, h, len(lines))
				}
				for _, l := range lines {
					if Width(l) > max(w, 10) {
						t.Fatalf("%q %dx%d: %d cells in %q", keys, w, h, Width(l), l)
					}
					rest := strings.NewReplacer("\x1b[7m", "", "\x1b[m", "").Replace(l)
					if i := strings.IndexFunc(rest, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' }); i >= 0 {
						t.Fatalf("%q %dx%d: control character in %q", keys, w, h, rest)
					}
				}
				if h >= 12 && w >= 20 && keys == "" && !strings.Contains(strings.Join(lines, "\n"), "fix-login") {
					t.Fatalf("%dx%d: the job that runs is not shown", w, h)
				}
			}
		}
	}
}
