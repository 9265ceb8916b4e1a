package trigger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// times returns what an expression names after a moment and up to another.
func times(t testing.TB, text string, z *time.Location, from, to time.Time) []time.Time {
	t.Helper()
	c, err := parseCron(text, z)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return lastOf(c, from, to, 1<<30)
}

// TestClockChanges: what the documentation says of the hour that is left out
// and of the one that comes twice.
func TestClockChanges(t *testing.T) {
	for _, tt := range []struct {
		about, expression, zone, from, to string
		want                              []string // in the zone
	}{
		{"an hour left out", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00"}},
		{"every hour over it", "0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00", "2026-03-29T04:00:00+02:00",
			[]string{"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		{"an hour that comes twice", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-26T12:00:00+01:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		{"every hour over that", "0 * * * *", "Europe/Berlin", "2026-10-25T00:30:00+02:00", "2026-10-25T03:00:00+01:00",
			[]string{"2026-10-25T01:00:00+02:00", "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"a midnight left out", "@daily", "America/Santiago", "2024-09-07T12:00:00-04:00", "2024-09-09T12:00:00-03:00",
			[]string{"2024-09-09T00:00:00-03:00"}},
		// The library itself misses this day.
		{"noon of that day", "0 12 * * SUN", "America/Santiago", "2024-09-02T12:00:00-04:00", "2024-09-09T12:00:00-03:00",
			[]string{"2024-09-08T12:00:00-03:00"}},
		{"a clock that moves by half an hour", "0 3 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", "2026-10-05T00:00:00+11:00",
			[]string{"2026-10-04T03:00:00+11:00"}},
	} {
		z := zone(t, tt.zone)
		var got []string
		for _, at := range times(t, tt.expression, z, moment(t, tt.from), moment(t, tt.to)) {
			got = append(got, at.In(z).Format(time.RFC3339))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %s in %s: got %q, want %q", tt.about, tt.expression, tt.zone, got, tt.want)
		}
	}
}

func moment(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestCalendarAgainstEveryMinute looks at each minute of three days around a
// change of the clocks: is it in the schedule or not?
func TestCalendarAgainstEveryMinute(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		place := rapid.SampledFrom([]struct{ zone, near string }{
			{"Europe/Berlin", "2026-03-29T01:00:00Z"}, {"Europe/Berlin", "2026-10-25T01:00:00Z"},
			{"America/Santiago", "2024-09-08T04:00:00Z"}, {"America/Santiago", "2024-04-07T03:00:00Z"},
			{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"}, {"Australia/Lord_Howe", "2026-04-04T15:00:00Z"},
			{"Asia/Kolkata", "2026-01-01T00:00:00Z"}, {"UTC", "2026-02-28T12:00:00Z"},
		}).Draw(rt, "place")
		text := strings.Join([]string{
			rapid.SampledFrom([]string{"0", "30", "*/20", "5,59", "*"}).Draw(rt, "minute"),
			rapid.SampledFrom([]string{"*", "0", "1", "2", "3", "12", "*/5", "22-23"}).Draw(rt, "hour"),
			rapid.SampledFrom([]string{"*", "8", "25-31", "1"}).Draw(rt, "day"),
			"*",
			rapid.SampledFrom([]string{"*", "SUN", "MON-FRI"}).Draw(rt, "weekday"),
		}, " ")
		z := zone(t, place.zone)
		parsed, err := cron.ParseStandard(text)
		if err != nil {
			rt.Fatal(err)
		}
		spec := parsed.(*cron.SpecSchedule)
		near := moment(t, place.near)
		from, to := near.Add(-36*time.Hour), near.Add(36*time.Hour)
		var want []time.Time
		for at := from.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
			if named(spec, at.In(z)) {
				want = append(want, at)
			}
		}
		if got := times(t, text, z, from, to); !slices.EqualFunc(got, want, time.Time.Equal) {
			rt.Fatalf("%s in %s: got %v, want %v", text, place.zone, got, want)
		}
	})
}

// named is the definition: each field has the bit of the local time.
func named(s *cron.SpecSchedule, at time.Time) bool {
	const star = 1 << 63
	has := func(bits uint64, value int) bool { return bits&(1<<uint(value)) != 0 }
	day, weekday := has(s.Dom, at.Day()), has(s.Dow, int(at.Weekday()))
	either := day || weekday
	if s.Dom&star != 0 || s.Dow&star != 0 {
		either = day && weekday
	}
	return either && has(s.Minute, at.Minute()) && has(s.Hour, at.Hour()) && has(s.Month, int(at.Month()))
}

func TestParseCronRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "empty",
		"* * * *":                    "expected exactly 5 fields",
		"0 0 9 * * *":                "expected exactly 5 fields",
		"60 * * * *":                 "above maximum",
		"0 9 * * 7":                  "above maximum",
		"0 9 31 FEB *":               "no such day",
		", * * * *":                  "empty",
		"@every 1h":                  "as every",
		"@reboot":                    "unrecognized",
		"TZ=Europe/Berlin 0 9 * * *": "as zone",
		"CRON_TZ=UTC":                "as zone",
	} {
		if _, err := parseCron(in, time.UTC); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", in, err, want)
		}
	}
	if got := times(t, "0 0 29 2 *", time.UTC, moment(t, "2024-03-01T00:00:00Z"), moment(t, "2028-03-01T00:00:00Z")); len(got) != 1 {
		t.Errorf("29 February: %v", got)
	}
}

func FuzzParseCron(f *testing.F) {
	for _, seed := range []string{"0 9 * * MON-FRI", "*/5 * * * *", "@daily", "TZ=x", "1-2/3,? * 1 JAN sun"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCron(text, time.UTC)
		if err != nil {
			return
		}
		from := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
		if next := c.next(from); !next.After(from) {
			t.Fatalf("%q: the first time after %s is %s", text, from, next)
		}
	})
}

func TestInterval(t *testing.T) {
	anchor := time.Date(2026, 1, 1, 0, 0, 0, 7, time.UTC)
	i := interval{anchor, 15 * time.Minute}
	for after, want := range map[time.Duration]time.Duration{-time.Hour: 15, 0: 15, time.Minute: 15, 15*time.Minute - 1: 15, 15 * time.Minute: 30, 100 * time.Hour: 6015} {
		if got := i.next(anchor.Add(after)).Sub(anchor); got != want*time.Minute {
			t.Errorf("after %s: %s, want %s", after, got, want*time.Minute)
		}
	}
}
