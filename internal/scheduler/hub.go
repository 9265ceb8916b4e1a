package scheduler

import (
	"cmp"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/api"
)

// Subscribe returns a channel of updates from now on. A listener that is more
// than buffer updates behind misses some and is told how many; it never slows
// the scheduler. The channel is closed by cancel, which may be called twice.
func (s *Scheduler) Subscribe(buffer int) (updates <-chan api.Update, cancel func()) {
	_, _, updates, cancel = s.hub.subscribe("", buffer)
	return updates, cancel
}

// SubscribeFrom is Subscribe for a listener that has heard everything up to the
// update whose ID is last: past is what came since, and updates goes on from
// there. If that is no longer known, past is an UpdateGap that misses an unknown
// number, 0. Without last, past is empty. at is the id of the latest update: what a
// listener without last sends as last if it is cut off before it has heard anything.
func (s *Scheduler) SubscribeFrom(last string, buffer int) (at string, past []api.Update, updates <-chan api.Update, cancel func()) {
	return s.hub.subscribe(last, buffer)
}

// maxPast is how many updates are remembered for listeners that come back, and
// maxPastText how many bytes of workers' text those may hold.
const (
	maxPast     = 4096
	maxPastText = 8 << 20
)

// hub passes updates to listeners.
type hub struct {
	mu        sync.Mutex
	boot      string // which life of the scheduler; "" before the first update
	count     uint64 // updates so far
	past      []api.Update
	pastText  int
	listeners map[*listener]struct{}
}

type listener struct {
	ch     chan api.Update
	missed int
}

func (h *hub) subscribe(last string, buffer int) (string, []api.Update, <-chan api.Update, func()) {
	l := &listener{ch: make(chan api.Update, max(buffer, 2))}
	h.mu.Lock()
	defer h.mu.Unlock()
	at, past := h.id(), h.since(last)
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	var once sync.Once
	return at, past, l.ch, func() {
		once.Do(func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.listeners, l)
			close(l.ch)
		})
	}
}

// isHeard reports whether anybody listens.
func (h *hub) isHeard() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) > 0
}

// since returns the updates after the one whose id is last.
func (h *hub) since(last string) []api.Update {
	if last == "" {
		return nil
	}
	boot, text, _ := strings.Cut(last, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	oldest := h.count - uint64(len(h.past)) // the last one that is forgotten
	if err != nil || boot != h.boot || n < oldest || n > h.count {
		return []api.Update{{ID: h.id(), Kind: api.UpdateGap, Time: now()}}
	}
	return append([]api.Update(nil), h.past[n-oldest:]...)
}

// id returns that of the latest update.
func (h *hub) id() string {
	h.boot = cmp.Or(h.boot, strings.ReplaceAll(uuid.NewString(), "-", ""))
	return h.boot + "-" + strconv.FormatUint(h.count, 10)
}

// publish gives u to every listener that has room for it and, if it missed
// some before, for the word about that.
func (h *hub) publish(u api.Update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.id()
	h.count++
	u.ID = h.id()
	h.remember(u)
	for l := range h.listeners {
		need := 1
		if l.missed > 0 {
			need = 2
		}
		if cap(l.ch)-len(l.ch) < need {
			l.missed++
			continue
		}
		if l.missed > 0 {
			l.ch <- api.Update{ID: before, Kind: api.UpdateGap, Time: u.Time, Missed: l.missed}
			l.missed = 0
		}
		l.ch <- u
	}
}

// remember keeps u for listeners that come back, and forgets the oldest.
func (h *hub) remember(u api.Update) {
	h.past = append(h.past, u)
	h.pastText += textOf(&u)
	n := 0
	for len(h.past)-n > maxPast || h.pastText > maxPastText && len(h.past)-n > 1 {
		h.pastText -= textOf(&h.past[n])
		h.past[n] = api.Update{}
		n++
	}
	h.past = h.past[n:]
}

func textOf(u *api.Update) int {
	if u.Event == nil {
		return len(u.Text)
	}
	return len(u.Text) + len(u.Event.Text) + len(u.Event.Command)
}
