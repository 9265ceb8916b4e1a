package supervisor

import (
	"cmp"
	"slices"
	"time"
)

// Intensity bounds how often a core may crash: more than Count times within
// Within, and its place stays empty for Isolate; the next time for twice as
// long, up to MaxIsolate. A zero value stands for the default that is named.
type Intensity struct {
	Count      int           // 5
	Within     time.Duration // 60 s
	Isolate    time.Duration // 30 s
	MaxIsolate time.Duration // 10 min
}

func (i Intensity) withDefaults() Intensity {
	i.Count = cmp.Or(max(i.Count, 0), 5)
	i.Within = cmp.Or(max(i.Within, 0), 60*time.Second)
	i.Isolate = cmp.Or(max(i.Isolate, 0), 30*time.Second)
	i.MaxIsolate = max(cmp.Or(max(i.MaxIsolate, 0), 10*time.Minute), i.Isolate)
	return i
}

// crashLoop tells a core that died from one that dies again and again.
type crashLoop struct {
	Intensity
	crashes    []time.Time // within Within
	isolations int         // since a core lived for Within, or somebody vouched for it
}

// crashed notes a crash of a core that had lived for so long, and returns how
// long none shall be started; 0: it is no loop.
func (l *crashLoop) crashed(now time.Time, lived time.Duration) time.Duration {
	if lived >= l.Within {
		l.isolations = 0
	}
	l.crashes = append(l.crashes, now)
	l.crashes = slices.DeleteFunc(l.crashes, func(t time.Time) bool { return now.Sub(t) > l.Within })
	if len(l.crashes) <= l.Count {
		return 0
	}
	return l.isolate()
}

// isolate returns how long the isolation that begins now lasts.
func (l *crashLoop) isolate() time.Duration {
	d := l.Isolate
	for range l.isolations {
		if d *= 2; d >= l.MaxIsolate {
			return l.MaxIsolate
		}
	}
	l.isolations++
	return d
}

// forgive forgets everything: a person vouches for the next core.
func (l *crashLoop) forgive() { l.crashes, l.isolations = nil, 0 }
