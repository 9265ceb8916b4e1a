package trigger

import "time"

// alarm is a timer that is set again and again.
type alarm struct{ timer *time.Timer }

// newAlarm returns an alarm that is not set.
func newAlarm() *alarm {
	a := &alarm{time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

// in sets the alarm, in place of what it was set to.
func (a *alarm) in(d time.Duration) { a.timer.Reset(d) }

// due returns the channel on which it goes off.
func (a *alarm) due() <-chan time.Time { return a.timer.C }

func (a *alarm) stop() { a.timer.Stop() }
