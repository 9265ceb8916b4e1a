package terminal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

var named = map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown,
	"home": tea.KeyHome, "end": tea.KeyEnd, "backspace": tea.KeyBackspace}

// press presses keys, each a character or a name in <>, and gives the topModel what
// comes of it; what would come later does not. It returns whether it has quit.
func press(m *topModel, keys string) (quit bool) {
	for keys != "" {
		k := tea.Key{Code: []rune(keys)[0], Text: string([]rune(keys)[0])}
		rest := keys[len(k.Text):]
		if name, after, ok := strings.Cut(rest, ">"); k.Text == "<" && ok {
			k, rest = tea.Key{Code: named[name]}, after
		}
		keys = rest
		_, cmd := m.Update(tea.KeyPressMsg(k))
		quit = settle(m, cmd) || quit
	}
	return quit
}

// settle runs a command and those that follow it, but for timers.
func settle(m *topModel, cmd tea.Cmd) (quit bool) {
	for n := 0; cmd != nil && n < 100; n++ {
		msg := cmd()
		if _, ok := msg.(tea.QuitMsg); ok {
			return true
		}
		_, cmd = m.Update(msg)
		if _, ok := msg.(logMsg); ok && !slices.Contains([]int{readAtOnce}, len(msg.(logMsg).events)) {
			return false // what comes next is a timer
		}
	}
	return false
}

func TestActions(t *testing.T) {
	const fix, review = "01a1fcce-0009", "01a1fcce-0008"
	for _, c := range []struct{ keys, told, say string }{
		{"jc", "", ""}, // it asks first
		{"jcy", "cancel " + fix, "fix-login: is cancelled"},
		{"jcn", "", "nothing changed"},
		{"jc<esc>", "", "nothing changed"},
		{"ja", "", "fix-login does not wait for approval"},
		{"jr", "", "fix-login does not wait for approval"},
		{"ay", "answer " + review + " true ", "review: approved"},
		{"<down><up>rtests arx<backspace>e missing<enter>", "answer " + review + " false tests are missing", "review: rejected"},
		{"r <enter>", "", "a rejection needs a comment: say what should be improved"},
		{"rno<esc>", "", "nothing changed"},
		{"py", "pause", "paused: p resumes"},
		{"pn", "", "nothing changed"},
		{"/rev<enter>ay", "answer " + review + " true ", "review: approved"},
		{"/nothing<enter>c", "", "no job is chosen"},
		{"Gkkk<home><end>gjcy", "cancel " + fix, "fix-login: is cancelled"},
		{"<pgdown><pgup>jcy", "cancel " + fix, "fix-login: is cancelled"},
	} {
		t.Run(c.keys, func(t *testing.T) {
			f := &fake{picture: busyPicture()}
			m := stood(t, f, 100, 30, TopOptions{})
			press(m, c.keys)
			if got := strings.Join(f.told, ";"); got != c.told {
				t.Errorf("the scheduler was told %q, want %q", got, c.told)
			}
			if m.say != c.say {
				t.Errorf("it says %q, want %q", m.say, c.say)
			}
		})
	}
}

func TestResume(t *testing.T) {
	f := &fake{picture: busyPicture()}
	f.picture.Overview.Isolations = append(f.picture.Overview.Isolations, api.Isolation{Scope: "global"})
	m := stood(t, f, 100, 30, TopOptions{})
	press(m, "p")
	if !strings.Contains(m.render(), "Resume them?") {
		t.Errorf("it does not ask: %s", m.render())
	}
	press(m, "y")
	if got := strings.Join(f.told, ";"); got != "resume" {
		t.Errorf("the scheduler was told %q", got)
	}
}

func TestRefused(t *testing.T) {
	f := &fake{picture: busyPicture(), refuse: errors.New("job fix-login is completed already\x1b[2J")}
	m := stood(t, f, 100, 30, TopOptions{})
	press(m, "cy")
	if m.say != "job fix-login is completed already" || !m.bad {
		t.Errorf("it says %q", m.say)
	}
}

func TestQuit(t *testing.T) {
	m := stood(t, &fake{picture: busyPicture()}, 80, 24, TopOptions{})
	if press(m, "/q<esc>") {
		t.Error("a q that is typed into the filter quits")
	}
	if press(m, "lq") {
		t.Error("q in a log quits instead of going back")
	}
	if !press(m, "q") {
		t.Error("q does not quit")
	}
	_, cmd := m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if cmd == nil {
		t.Fatal("Ctrl-C does nothing")
	}
	if _, ok := cmd().(tea.QuitMsg); !ok {
		t.Error("Ctrl-C does not quit")
	}
}

// The job that was chosen stays chosen while others come and go.
func TestChosenStays(t *testing.T) {
	f := &fake{picture: busyPicture()}
	m := stood(t, f, 100, 30, TopOptions{})
	press(m, "G<home>")
	f.picture.Jobs = append([]api.Job{jobOf(30, "older", "website", "codex", job.Dispatched)}, f.picture.Jobs...)
	m.Update(m.look()())
	if e := m.jobs.selected(m.scene.picture.Jobs); e == nil || e.Spec.Name != "review" {
		t.Errorf("chosen is %v", e)
	}
	press(m, "s")
	if e := m.jobs.selected(m.scene.picture.Jobs); e == nil || e.Spec.Name != "review" {
		t.Errorf("after sorting, chosen is %v", e)
	}
}

func TestOrders(t *testing.T) {
	m := stood(t, &fake{picture: busyPicture()}, 100, 30, TopOptions{})
	for _, want := range []string{"review fix-login evil write-docs later", "later write-docs evil review fix-login", "fix-login later write-docs evil review"} {
		var names []string
		for _, e := range m.jobs.shown(m.scene.picture.Jobs) {
			names = append(names, string(e.Spec.Name))
		}
		if m.jobs.order == byCost { // only one has a cost; the others stand by their ids
			want = "fix-login later write-docs evil review"
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", m.jobs.order, got, want)
		}
		press(m, "s")
	}
}

func TestLog(t *testing.T) {
	f := &fake{picture: busyPicture()}
	for n := range 1200 {
		e := api.Event{Cursor: int64(n + 1)}
		e.Event.Kind, e.Event.Text, e.Event.Time = job.EventText, fmt.Sprintf("line %d\x1b[2J", n+1), topNoon
		f.events = append(f.events, e)
	}
	m := stood(t, f, 80, 12, TopOptions{})
	press(m, "j<enter>")
	if len(m.log.lines) != 1200 {
		t.Fatalf("%d lines were read, want all", len(m.log.lines))
	}
	golden(t, "top/log.txt", m.render()+"\n")
	press(m, "<pgup>k")
	golden(t, "top/log-above.txt", m.render()+"\n")

	// What is read stays while more comes; the end follows.
	before := m.log.lines[len(m.log.lines)-m.log.above-1]
	e := f.events[0]
	e.Cursor, e.Event.Text = 1201, "the last"
	f.events = append(f.events, e)
	settle(m, m.log.again(m, readMsg{m.log.turn}))
	if after := m.log.lines[len(m.log.lines)-m.log.above-1]; after != before {
		t.Errorf("%q has moved to %q", before, after)
	}
	press(m, "G")
	if !strings.Contains(m.render(), "the last") {
		t.Error("the end is not shown")
	}
	press(m, "<home>")
	if !strings.Contains(m.render(), "line 1\n") {
		t.Errorf("the beginning is not shown: %s", m.render())
	}

	// An answer that comes after the log was left changes nothing.
	late := m.log.read(m)
	press(m, "<esc>")
	m.Update(late())
	if m.mode != browsing {
		t.Error("the log was not left")
	}
}

// askingPicture is busyPicture, in which two agents ask.
func askingPicture() TopPicture {
	p := busyPicture()
	for i := range p.Jobs {
		if e := &p.Jobs[i]; e.Spec.Name == "fix-login" || e.Spec.Name == "evil" {
			e.Status.State = job.WaitingApproval
		}
	}
	p.Questions = []api.Question{
		{Number: 1, Job: "01a1fcce-0009", Text: "an old one", Decisions: []string{api.Allow, api.Deny}, State: api.QuestionOpen},
		{Number: 2, Job: "01a1fcce-0009", Text: "may I?", Command: "rm -rf build\x1b[2J\necho done", Decisions: []string{api.Allow, api.Deny}, State: api.QuestionOpen, Waits: true},
		{Number: 1, Job: "01a1fcce-0007", Text: "which\u202e parser?", State: api.QuestionOpen, Waits: true},
	}
	return p
}

// What an agent asks stands first and is answered where it stands.
func TestAsked(t *testing.T) {
	for _, c := range []struct{ keys, told, say string }{
		{"a", "", ""}, // it asks first
		{"ay", "answer question 2 of 01a1fcce-0009: allow ", "fix-login: it may"},
		{"an", "", "nothing changed"},
		{"r<enter>", "answer question 2 of 01a1fcce-0009: deny ", "fix-login: it may not"},
		{"ruse makex<backspace><enter>", "answer question 2 of 01a1fcce-0009: deny use make", "fix-login: it may not"},
		{"r<esc>", "", "nothing changed"},
		{"/evil<enter>a<enter>", "", "it wants words"},
		{"/evil<enter>athe second<enter>", "answer question 1 of 01a1fcce-0007:  the second", "evil: answered"},
	} {
		t.Run(c.keys, func(t *testing.T) {
			f := &fake{picture: askingPicture()}
			m := stood(t, f, 100, 30, TopOptions{})
			press(m, c.keys)
			if got := strings.Join(f.told, ";"); got != c.told || m.say != c.say {
				t.Errorf("the scheduler was told %q, and it says %q; want %q and %q", got, m.say, c.told, c.say)
			}
		})
	}
	m := stood(t, &fake{picture: askingPicture()}, 100, 24, TopOptions{Colour: true})
	golden(t, "top/asks.txt", strings.ReplaceAll(m.render(), "\x1b", "\\e")+"\n")
	press(m, "r")
	if want := "no, run rm -rf build^[[2J echo done: _"; !strings.HasSuffix(m.render(), want) {
		t.Errorf("it does not ask why not: %s", m.render())
	}
}

// A job that runs shows what it has done last, of which only so much is kept.
func TestLastLine(t *testing.T) {
	m := stood(t, &fake{picture: busyPicture()}, 120, 30, TopOptions{})
	event := func(id job.ID, e job.Event) api.Update { return api.Update{Kind: api.UpdateEvent, Job: id, Event: &e} }
	var f feed
	f.add(event("01a1fcce-0009", job.Event{Kind: job.EventText, Text: "I look at it"}))
	f.add(event("01a1fcce-0009", job.Event{Kind: job.EventCommand, Command: "go test ./...\x1b[2J" + strings.Repeat("x", 1000)}))
	f.add(event("01a1fcce-0009", job.Event{Kind: job.EventUsage}))
	f.add(event("unknown", job.Event{Kind: job.EventText, Text: "nobody sees it"}))
	list := f.take()
	if len(list) != 2 {
		t.Fatalf("the feed has %d updates, want one of each job", len(list))
	}
	m.scene.opts.Now = func() time.Time { return topNoon.Add(time.Minute) }
	if _, cmd := m.Update(updatesMsg(list)); cmd != nil {
		t.Error("it looks again since a run has done something")
	}
	if !strings.Contains(m.render(), "$ go test ./...xxx") {
		t.Errorf("what it does is not shown: %s", m.render())
	}
	if n := Width(m.jobs.last["01a1fcce-0009"]); n > maxLastLine {
		t.Errorf("%d cells are kept", n)
	}
	m.Update(m.look()())
	if len(m.jobs.last) != 1 {
		t.Errorf("the last lines of %d jobs are kept, want those on the screen", len(m.jobs.last))
	}
}

// What changes is on the screen at once, before the next look.
func TestHear(t *testing.T) {
	f := &fake{picture: busyPicture()}
	m := stood(t, f, 100, 30, TopOptions{})
	_, cmd := m.Update(updatesMsg{
		{Kind: api.UpdateJob, Job: "01a1fcce-0006", Entry: job.Dispatched, State: job.Running, Time: topNoon, Attempt: 1},
		{Kind: api.UpdateJob, Job: "01a1fcce-0009", Entry: job.Queued, State: job.WaitingApproval, Time: topNoon, Text: "look at it"},
		{Kind: api.UpdateJob, Job: "unknown", Entry: job.Queued},
		{Kind: api.UpdateCore, Text: "core 1 is up"},
	})
	if cmd != nil {
		t.Error("it looks again although it has just looked")
	}
	states := map[string]string{}
	for _, e := range m.jobs.shown(m.scene.picture.Jobs) {
		states[string(e.Spec.Name)] = stateWord(e)
	}
	if states["write-docs"] != "running" || states["fix-login"] != "waiting_approval" {
		t.Errorf("states are %v", states)
	}
	m.scene.opts.Now = func() time.Time { return topNoon.Add(time.Second) }
	if _, cmd := m.Update(updatesMsg{{Kind: api.UpdateCore}}); cmd == nil {
		t.Error("it does not look again")
	}
	if _, cmd := m.Update(updatesMsg{{Kind: api.UpdateCore}}); cmd != nil {
		t.Error("it looks twice at once")
	}
}
