package scheduler

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Feed tells what happens: listeners, who may miss some of it, by updates
// (Subscribe), and the observer, who misses nothing, by moments. Whoever has made a
// change durable tells of it here. It never waits for anybody.
//
// It reads the store only to tell of jobs that it is given by their ids.
type Feed struct {
	store    queue.Reader
	log      zerolog.Logger
	observer Observer // nil: there is none

	// The end of a job is told on to those who act on it, maybe more than once.
	forget func(*queue.Entry) // drops what is noted of it, and ends what it leads
	follow func(*queue.Entry) // finds what follows from it
	judge  func(*queue.Entry) // has it evaluated

	mu         sync.Mutex   // guards what follows
	boot       string       // which life of the scheduler; "" before the first update
	count      uint64       // updates so far
	past       []api.Update // the first gone of them are forgotten
	gone       int
	pastText   int
	listeners  map[*listener]struct{}
	ended      map[job.ID]bool // whose end was observed; see maxEnded
	endedOrder []job.ID
}

type listener struct {
	ch     chan api.Update
	missed int
}

// maxPast is how many updates are remembered for listeners that come back, and
// maxPastText how many bytes of workers' text those may hold.
const (
	maxPast     = 4096
	maxPastText = 8 << 20
)

// Subscribe returns a channel of updates from now on. A listener that is more
// than buffer updates behind misses some and is told how many; it never slows
// the scheduler. The channel is closed by cancel, which may be called twice.
func (f *Feed) Subscribe(buffer int) (updates <-chan api.Update, cancel func()) {
	_, _, updates, cancel = f.SubscribeFrom("", buffer)
	return updates, cancel
}

// SubscribeFrom is Subscribe for a listener that has heard everything up to the
// update whose ID is last: past is what came since, and updates goes on from
// there. If that is no longer known, past is an UpdateGap that misses an unknown
// number, 0. Without last, past is empty. at is the id of the latest update: what a
// listener without last sends as last if it is cut off before it has heard anything.
func (f *Feed) SubscribeFrom(last string, buffer int) (at string, past []api.Update, updates <-chan api.Update, cancel func()) {
	l := &listener{ch: make(chan api.Update, max(buffer, 2))}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, past = f.id(), f.since(last)
	if f.listeners == nil {
		f.listeners = map[*listener]struct{}{}
	}
	f.listeners[l] = struct{}{}
	var once sync.Once
	return at, past, l.ch, func() {
		once.Do(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.listeners, l)
			close(l.ch)
		})
	}
}

// isHeard reports whether anybody listens.
func (f *Feed) isHeard() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.listeners) > 0
}

// since returns the updates after the one whose id is last.
func (f *Feed) since(last string) []api.Update {
	if last == "" {
		return nil
	}
	boot, text, _ := strings.Cut(last, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	past := f.past[f.gone:]
	oldest := f.count - uint64(len(past)) // the last one that is forgotten
	if err != nil || boot != f.boot || n < oldest || n > f.count {
		return []api.Update{{ID: f.id(), Kind: api.UpdateGap, Time: now()}}
	}
	return slices.Clone(past[n-oldest:])
}

// id returns that of the latest update.
func (f *Feed) id() string { return f.idOf(f.count) }

func (f *Feed) idOf(n uint64) string {
	if f.boot == "" {
		f.boot = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	return f.boot + "-" + strconv.FormatUint(n, 10)
}

// publish gives u to every listener that has room for it and, if it missed
// some before, for the word about that.
func (f *Feed) publish(u api.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	u.ID = f.id()
	f.remember(u)
	for l := range f.listeners {
		need := 1
		if l.missed > 0 {
			need = 2
		}
		if cap(l.ch)-len(l.ch) < need {
			l.missed++
			continue
		}
		if l.missed > 0 {
			l.ch <- api.Update{ID: f.idOf(f.count - 1), Kind: api.UpdateGap, Time: u.Time, Missed: l.missed}
			l.missed = 0
		}
		l.ch <- u
	}
}

// remember keeps u for listeners that come back, and forgets the oldest.
func (f *Feed) remember(u api.Update) {
	f.past = append(f.past, u)
	f.pastText += textOf(&u)
	for kept := len(f.past) - f.gone; kept > maxPast || f.pastText > maxPastText && kept > 1; kept-- {
		f.pastText -= textOf(&f.past[f.gone])
		f.past[f.gone] = api.Update{}
		f.gone++
	}
	if f.gone > maxPast { // seldom, since all that is kept is moved
		f.past, f.gone = slices.Delete(f.past, 0, f.gone), 0
	}
}

func textOf(u *api.Update) int {
	if u.Event == nil {
		return len(u.Text)
	}
	return len(u.Text) + len(u.Event.Text) + len(u.Event.Command)
}
