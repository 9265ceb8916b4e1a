package trigger

import (
	"testing"
	"time"
)

func TestDue(t *testing.T) {
	const hours = time.Hour
	hourly := interval{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Hour}
	for _, tt := range []struct {
		about   string
		now     time.Duration // since the last one
		misfire Misfire
		most    int
		fire    []int // hours
		missed  int
		latest  int
	}{
		{"not yet", hours - 1, Once, 9, nil, 0, 0},
		{"now", hours, Skip, 9, []int{1}, 0, 1},
		{"a little late", hours + onTime, Skip, 9, []int{1}, 0, 1},
		{"too late", hours + onTime + 1, Skip, 9, nil, 1, 1},
		{"several, the last on time", 3 * hours, Skip, 9, []int{3}, 2, 3},
		{"several", 3*hours + hours/2, Skip, 9, nil, 3, 3},
		{"late", hours + hours/2, Once, 9, []int{1}, 0, 1},
		{"the default is once", 3*hours + hours/2, "", 9, []int{3}, 2, 3},
		{"all", 3*hours + hours/2, CatchUp, 9, []int{1, 2, 3}, 0, 3},
		{"all, bounded", 5*hours + hours/2, CatchUp, 2, []int{4, 5}, 3, 5},
		{"the clock went back", -5 * hours, CatchUp, 9, nil, 0, 0},
	} {
		d := due(hourly, hourly.anchor, hourly.anchor.Add(tt.now), tt.misfire, tt.most)
		ok := len(d.fire) == len(tt.fire)
		for i := range d.fire {
			ok = ok && d.fire[i].Equal(hourly.anchor.Add(time.Duration(tt.fire[i])*time.Hour))
		}
		if tt.latest == 0 {
			ok = ok && d.latest.IsZero()
		} else {
			ok = ok && d.latest.Equal(hourly.anchor.Add(time.Duration(tt.latest)*time.Hour))
		}
		if !ok || d.missed != tt.missed {
			t.Errorf("%s: got %+v, want %+v", tt.about, d, tt)
		}
	}
}

// TestDueAfterYears: long downtimes cost little, and the bound holds.
func TestDueAfterYears(t *testing.T) {
	c, err := parseCron("* * * * *", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	last := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)
	now := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	d := due(c, last, now, CatchUp, 1000)
	if len(d.fire) != 1000 || !d.fire[0].Equal(now.Add(-30*time.Second-(1000-1)*time.Minute)) || d.missed > 10*1000 {
		t.Errorf("%d to fire from %s on, %d missed", len(d.fire), d.fire[0], d.missed)
	}
	yearly, err := parseCron("@yearly", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	if d := due(yearly, last, now, CatchUp, 100); len(d.fire) != 16 || d.missed != 0 {
		t.Errorf("%+v, want 16 to fire", d)
	}
}
