package trigger

import "time"

// onTime is how late a firing may be and still count as on time.
const onTime = time.Minute

// decision is what becomes of the times that passed.
type decision struct {
	fire   []time.Time // oldest first
	missed int         // how many are dropped, as far as they were counted
	latest time.Time   // the last of those that passed; zero if none did
}

// due decides about the times of a schedule after last and up to now. The last
// of them is on time if it is not older than onTime; the others were missed.
func due(s schedule, last, now time.Time, m Misfire, most int) decision {
	passed := lastOf(s, last, now, most)
	if len(passed) == 0 {
		return decision{}
	}
	d := decision{latest: passed[len(passed)-1]}
	switch {
	case m == CatchUp:
		d.fire = passed[max(len(passed)-most, 0):]
	case m == Skip && now.Sub(d.latest) > onTime:
	default:
		d.fire = passed[len(passed)-1:]
	}
	d.missed = len(passed) - len(d.fire)
	return d
}

// lastOf returns the last times of s after from and up to to, at least keep if
// there are so many. It looks back in steps that grow, since after a year of
// standing still a schedule of every minute has half a million of them.
func lastOf(s schedule, from, to time.Time, keep int) []time.Time {
	for back := time.Hour; ; back *= 8 {
		start := to.Add(-back)
		whole := !start.After(from) || back > 1<<60
		if whole {
			start = from
		}
		var found []time.Time
		for at := s.next(start); !at.IsZero() && !at.After(to); at = s.next(at) {
			found = append(found, at)
		}
		if whole || len(found) >= keep {
			return found
		}
	}
}
