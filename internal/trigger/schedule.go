package trigger

import (
	"errors"
	"strings"
	"time"
	_ "time/tzdata" // the program is copied to hosts that have no zone files

	"github.com/robfig/cron/v3"
)

// schedule is a set of points in time.
type schedule interface {
	// next returns the first one after t, zero if there is none.
	next(t time.Time) time.Time
}

// newSchedule returns the schedule of a trigger with a time, which is valid;
// an interval is counted from anchor.
func newSchedule(s Settings, anchor time.Time) (schedule, error) {
	if s.Cron == "" {
		return interval{anchor: anchor, every: s.Every.Std()}, nil
	}
	zone, err := loadZone(s.Zone)
	if err != nil {
		return nil, err
	}
	return parseCron(s.Cron, zone)
}

// loadZone returns the zone of a name, the host's for "".
func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.Local, nil
	}
	return time.LoadLocation(name)
}

// interval is anchor + n·every, for n from 1.
type interval struct {
	anchor time.Time
	every  time.Duration
}

func (i interval) next(t time.Time) time.Time {
	n := time.Duration(0)
	if since := t.Sub(i.anchor); since > 0 {
		n = since / i.every
	}
	return i.anchor.Add((n + 1) * i.every)
}

// calendar is a cron expression in a zone.
type calendar struct {
	spec cron.SpecSchedule
	zone *time.Location
}

// horizon is how far ahead a calendar looks: the longest wait that a valid
// expression can ask for is from one 29 February to the next over 1900 or 2100.
const horizon = 9 // years

// parseCron reads an expression of five fields or a descriptor.
func parseCron(text string, zone *time.Location) (schedule, error) {
	switch {
	case strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ="):
		return nil, errors.New("give the time zone as zone")
	case strings.HasPrefix(text, "@every"):
		return nil, errors.New("give an interval as every")
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok || spec.Minute == 0 || spec.Hour == 0 || spec.Dom == 0 || spec.Month == 0 || spec.Dow == 0 {
		return nil, errors.New("a field is empty")
	}
	c := calendar{spec: *spec, zone: zone}
	// A date that no year has, such as 31 February, is in none from here either.
	if c.next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("there is no such day")
	}
	return c, nil
}

// next asks the library for one stretch of constant offset after the other: it
// does not always find its way over a change of the clocks (where midnight is
// left out it misses the whole day). What it says of such changes stays true:
// times that are left out are not in the schedule, and those that come twice
// are in it twice.
func (c calendar) next(t time.Time) time.Time {
	for limit := t.AddDate(horizon, 0, 0); t.Before(limit); {
		local := t.Add(1).In(c.zone) // the first moment that can be meant
		_, offset := local.Zone()
		_, end := local.ZoneBounds()
		spec := c.spec
		spec.Location = time.FixedZone("", offset)
		at := spec.Next(t)
		switch {
		case !at.IsZero() && (end.IsZero() || at.Before(end)):
			return at.UTC()
		case end.IsZero():
			return time.Time{}
		}
		t = end.Add(-1)
	}
	return time.Time{}
}
