package policy

import "time"

// buckets is in how many steps use leaves the window. What was used counts for
// at least the window, so that a budget holds for any stretch of that length,
// and for at most one step more.
const buckets = 24

// bucket is what was used within one step. Of a tenant there are those that
// are not empty, the oldest first, at most buckets+1.
type bucket struct {
	step int64 // since 1970
	used amount
	done int64
}

// window says which steps count. All tenants share them, so that their use is
// compared over the same stretch of time.
type window struct {
	width int64   // of a step, ns
	tick  int64   // the latest time
	steps []int64 // those in which something was used, the oldest first
}

func newWindow(d time.Duration) window {
	return window{width: (int64(d) + buckets - 1) / buckets, tick: nanos(time.Time{})}
}

// step returns the present one.
func (w *window) step() int64 {
	s := w.tick / w.width
	if w.tick%w.width < 0 {
		s--
	}
	return s
}

// oldest is the first step that counts.
func (w *window) oldest() int64 { return w.step() - buckets }

// next returns when something leaves the window; false if there is nothing in it.
func (w *window) next() (int64, bool) {
	if len(w.steps) == 0 {
		return 0, false
	}
	return (w.steps[0] + buckets + 1) * w.width, true
}

// move goes on to now and says whether something has left.
func (w *window) move(now int64) bool {
	if now <= w.tick {
		return false
	}
	w.tick = now
	at, any := w.next()
	if !any || now < at {
		return false
	}
	n, oldest := 0, w.oldest()
	for n < len(w.steps) && w.steps[n] < oldest {
		n++
	}
	w.steps = w.steps[:copy(w.steps, w.steps[n:])]
	return true
}

// back goes back to now, if the clock was set back, and says whether use has to be
// dated anew: what was used at a time that has not come counts as used now. Else it
// would count for as long as the clock was wrong.
func (w *window) back(now int64) bool {
	if now >= w.tick {
		return false
	}
	w.tick = now
	step := w.step()
	n := len(w.steps)
	for n > 0 && w.steps[n-1] > step {
		n--
	}
	if n == len(w.steps) {
		return false
	}
	w.steps = w.steps[:n]
	if n == 0 || w.steps[n-1] < step {
		w.steps = append(w.steps, step)
	}
	return true
}

// date dates anew what the tenant has used, after the clock went back.
func (w *window) date(t *tenant) {
	step := w.step()
	n := len(t.window)
	var ahead bucket
	for ; n > 0 && t.window[n-1].step >= step; n-- {
		ahead.used.add(t.window[n-1].used)
		ahead.done += t.window[n-1].done
	}
	if n < len(t.window) {
		ahead.step = step
		t.window = append(t.window[:n], ahead)
	}
}

// record adds to what the tenant has used.
func (w *window) record(t *tenant, a amount, done int64) {
	if a == (amount{}) && done == 0 {
		return
	}
	step := w.step()
	if n := len(w.steps); n == 0 || w.steps[n-1] < step {
		w.steps = append(w.steps, step)
	}
	if n := len(t.window); n == 0 || t.window[n-1].step < step {
		t.window = append(t.window, bucket{step: step})
	}
	newest := &t.window[len(t.window)-1]
	newest.used.add(a)
	newest.done += done
	t.used.add(a)
	t.done += done
}

// drop takes away what of the tenant's use has left the window, and returns it.
func (w *window) drop(t *tenant) (gone amount, any bool) {
	n, oldest := 0, w.oldest()
	for ; n < len(t.window) && t.window[n].step < oldest; n++ {
		gone.add(t.window[n].used)
		t.done -= t.window[n].done
	}
	if n == 0 {
		return amount{}, false
	}
	t.window = t.window[:copy(t.window, t.window[n:])]
	t.used.sub(gone)
	return gone, true
}
