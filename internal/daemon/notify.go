package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
)

// Notifier tells the service manager how the program stands. Its zero value
// tells whatever manager the environment names, if it names one; a call that
// cannot be heard is logged and harms nothing.
type Notifier struct {
	// Send passes on lines in the words of sd_notify(3); nil sends them to
	// $NOTIFY_SOCKET, if that is set.
	Send func(lines string) error
	// Watchdog is how long the manager waits for a sign of life before it kills the
	// program; 0: it does not.
	Watchdog time.Duration
	// Health returns nil while the program is well, within half of Watchdog; nil:
	// it is well while it runs.
	Health func(ctx context.Context) error
	Log    zerolog.Logger
}

// NewNotifier returns a notifier for the manager that the environment of this
// process names (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID).
func NewNotifier(health func(context.Context) error, log zerolog.Logger) (*Notifier, error) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("read how often the watchdog wants a sign of life: %w", err)
	}
	return &Notifier{Watchdog: every, Health: health, Log: log}, nil
}

// Ready tells that requests are answered, at the start and after a reload; status
// is one line for people.
func (n *Notifier) Ready(status string) { n.say(daemon.SdNotifyReady, statusLine(status)) }

// Waiting tells that the program waits for something that it cannot begin or go on without,
// and is a sign of life: the manager gives it another StartTime. It is repeated meanwhile.
func (n *Notifier) Waiting(status string) {
	n.say(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", StartTime.Microseconds()), daemon.SdNotifyWatchdog, statusLine(status))
}

// StartTime is how long a start takes at most once nothing is waited for any more: TimeoutStartSec
// of the unit in deploy/systemd.
const StartTime = 2 * time.Minute

// Reloading tells that the configuration is being read again; Ready follows.
func (n *Notifier) Reloading() {
	// MONOTONIC_USEC is what Type=notify-reload asks for beside it.
	n.say(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}

// Replacing tells that another program takes this one's place, and is a sign of
// life; the other one says Ready.
func (n *Notifier) Replacing(status string) {
	n.say(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()), daemon.SdNotifyWatchdog, statusLine(status))
}

// Stopping tells that the program is about to end.
func (n *Notifier) Stopping(status string) { n.say(daemon.SdNotifyStopping, statusLine(status)) }

// Status shows people one line about how the program stands.
func (n *Notifier) Status(status string) { n.say(statusLine(status)) }

// Run gives a sign of life twice as often as the manager wants one, while the
// program is well, until ctx ends. It may be run again.
func (n *Notifier) Run(ctx context.Context) error {
	if n.Watchdog <= 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	tick := time.NewTicker(n.Watchdog / 2)
	defer tick.Stop()
	for sick := false; ; {
		err := n.health(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && sick:
			n.Log.Info().Msg("the program is well again")
			n.say(daemon.SdNotifyWatchdog, statusLine("well again"))
		case err == nil:
			n.say(daemon.SdNotifyWatchdog)
		case !sick:
			n.Log.Error().Err(err).Dur("watchdog", n.Watchdog).Msg("the program is not well: without a sign of life the service manager will restart it")
			n.Status("not well: " + err.Error())
		}
		sick = err != nil
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (n *Notifier) health(ctx context.Context) error {
	if n.Health == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.Watchdog/2, fmt.Errorf("no answer within %s", n.Watchdog/2))
	defer cancel()
	return n.Health(ctx)
}

func (n *Notifier) say(lines ...string) {
	send := n.Send
	if send == nil {
		send = func(lines string) error {
			_, err := daemon.SdNotify(false, lines)
			return err
		}
	}
	var text []string
	for _, line := range lines {
		if line != "" {
			text = append(text, line)
		}
	}
	if err := send(strings.Join(text, "\n")); err != nil {
		n.Log.Warn().Err(err).Strs("lines", text).Msg("the service manager was not told")
	}
}

// statusLine is the line that shows text, in one line.
func statusLine(text string) string {
	return "STATUS=" + strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}
