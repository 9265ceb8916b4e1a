package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// ErrNotIsolated is wrapped when there is nothing to lift.
var ErrNotIsolated = errors.New("not isolated")

// LoadIsolations reads the book that SaveIsolations wrote; without a file it is
// empty.
func LoadIsolations(path string) (*isolation.Book, error) {
	b := &isolation.Book{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is isolated: %w", err)
	}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("read what is isolated: %s: %w; move the file away to lift all of it", path, err)
	}
	// From here on the monotonic clock counts. What was written down while the wall
	// clock stood ahead lasts as long from now on as it was to last then.
	at := time.Now()
	list := b.List(at)
	for n := range list {
		i := &list[n]
		if i.Since.After(at) {
			i.Since, i.Until = at.UTC(), steady(at, i.Since, i.Until)
		} else {
			i.Until = steady(at, at, i.Until)
		}
	}
	b.Replace(list)
	return b, nil
}

// steady returns, on the monotonic clock too, the end of what was to end at
// until when it was since; zero stays zero.
func steady(now, since, until time.Time) time.Time {
	if until.IsZero() {
		return until
	}
	return now.Add(max(until.Sub(since), 0))
}

// SaveIsolations writes the book: after it, the file has the old content or the
// new one, whatever happens.
func SaveIsolations(path string, b *isolation.Book) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := statedir.WriteFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("write what is isolated: %w", err)
	}
	return nil
}

// escalated takes an escalation of a core.
func (s *Scheduler) escalated(c *supervisor.Core, x ipc.Escalation) {
	s.escalate(c, x.Escalation)
	s.mu.Lock()
	if m := s.cores[c]; m != nil {
		m.heard = x.Seq
	}
	s.mu.Unlock()
	s.tellIsolations() // the core waits for a list that takes it into account
}

// escalate takes an escalation of the core, nil for our own: what it isolates is
// kept, told to every core, and everybody who watches hears of it. It must not
// wait for a core.
func (s *Scheduler) escalate(c *supervisor.Core, x isolation.Escalation) {
	if s.cfg.Isolations.Apply(time.Now(), x.Isolation()) {
		s.isolationsChanged()
	}
	if x.Again || s.toldBy(c, x) {
		return
	}
	s.cfg.Log.Error().Str("scope", string(x.Scope)).Str("cause", string(x.Cause)).Str("action", string(x.Action)).Time("until", x.Until).Msg("on_escalation: " + x.Message)
	s.mu.Lock()
	if s.escalations = append(s.escalations, x); len(s.escalations) > maxEscalations {
		s.escalations = s.escalations[1:]
	}
	s.mu.Unlock()
	s.Feed.publish(api.Update{Kind: api.UpdateEscalation, Time: now(), Text: escalationText(x), Escalation: &api.Escalation{Scope: string(x.Scope), Cause: string(x.Cause), Message: x.Message, Action: string(x.Action), Time: x.Time, Until: x.Until, Again: x.Again}})
	if s.cfg.OnEscalation != nil {
		s.cfg.OnEscalation(x)
	}
	if x.Action == isolation.SafeStop && s.isStopOnSafeStop() {
		s.drives.Go(func() { s.stopAll("safe stop: " + x.Message) })
	}
}

// maxEscalations is how many of the latest escalations are remembered.
const maxEscalations = 100

// Escalations returns the latest that this scheduler has told of, at most 100,
// the newest last.
func (s *Scheduler) Escalations() []isolation.Escalation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.escalations)
}

// Pause puts a scope out of use because an operator asks: global, worker:KIND or
// workspace:/PATH. What runs goes on; nothing of the scope begins, for so long, or
// until somebody resumes it if that is 0, over restarts too.
func (s *Scheduler) Pause(scope, reason string, d time.Duration) (isolation.Isolation, error) {
	if d < 0 {
		return isolation.Isolation{}, fmt.Errorf("for %v: want 0 or more", d)
	}
	i, err := isolation.Paused(scope, reason, now(), d)
	if err != nil {
		return i, err
	}
	if !s.cfg.Isolations.Apply(time.Now(), i) {
		return i, queue.Refuse("%s is out of use already, for longer; `scheduler status` shows why", i.Scope)
	}
	s.cfg.Log.Info().Str("scope", string(i.Scope)).Time("until", i.Until).Msg("paused: " + i.Message)
	s.Feed.publish(api.Update{Kind: api.UpdateEscalation, Time: now(), Text: escalationText(isolation.Escalation{Scope: i.Scope, Message: i.Message, Action: i.Action, Until: i.Until})})
	s.isolationsChanged()
	return i, nil
}

// Drain lets what runs end, begins nothing, and returns when nothing runs; when ctx
// ends before that, work goes on as before. Jobs are taken all the while.
func (s *Scheduler) Drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.emptied.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.post(schedule.Draining)
	for len(s.live) > 0 && ctx.Err() == nil {
		s.emptied.Wait()
	}
	if err := context.Cause(ctx); err != nil {
		s.draining = false
		s.post(schedule.Starting)
		return err
	}
	return nil
}

// sameFact is how long after one core another may tell of the same: a full disk
// or a jump of the clock is seen by all of them.
const sameFact = 10 * time.Second

// toldBy reports whether another core has just told of what this one tells.
func (s *Scheduler) toldBy(c *supervisor.Core, x isolation.Escalation) bool {
	if c == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fact{x.Scope, x.Cause}
	last, known := s.facts[key]
	at := time.Now() // with its monotonic reading: one of these facts is a jump of the wall clock
	if known && last.by != c && at.Sub(last.at) < sameFact {
		return true
	}
	maps.DeleteFunc(s.facts, func(_ fact, t teller) bool { return at.Sub(t.at) >= sameFact })
	s.facts[key] = teller{c, at}
	return false
}

type fact struct {
	isolation.Scope
	isolation.Cause
}

type teller struct {
	by *supervisor.Core
	at time.Time
}

func escalationText(x isolation.Escalation) string {
	text := string(x.Scope) + ": " + x.Message
	switch {
	case x.Action == isolation.Notify:
		return text
	case x.Until.IsZero():
		return text + fmt.Sprintf("; isolated until `scheduler resume %s`", x.Scope)
	}
	return text + "; isolated until " + x.Until.Local().Format("15:04:05")
}

// isolationsChanged makes the change durable and lets every core know of it.
// A book that cannot be written is enforced all the same, by those who know it.
func (s *Scheduler) isolationsChanged() {
	if err := s.saveIsolations(); err != nil {
		s.cfg.Log.Error().Err(err).Msg("isolations are not durable")
	}
	s.postIsolations()
	s.tellIsolations()
}

// tellIsolations tells every core that does not have the book as it is, without
// waiting for it. A core that could not be told is tried again with each report.
func (s *Scheduler) tellIsolations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, version := s.cfg.Isolations.Versioned(time.Now())
	for _, m := range s.cores {
		if m.waiting || m.told == (listing{version, m.heard}) {
			continue // whoever waits makes its list when it is its turn
		}
		m.waiting = true
		s.drives.Go(func() { s.tellOf(m) })
	}
}

// listing says which list of isolations a core has.
type listing struct{ version, heard uint64 }

// tellOf tells one core the book, one list at a time.
func (s *Scheduler) tellOf(m *member) {
	m.telling.Lock()
	defer m.telling.Unlock()
	s.mu.Lock()
	m.waiting = false
	list := s.isolationsFor(m)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	defer s.poke() // not before: the core would refuse what was just lifted
	if err := m.Call(ctx, ipc.MethodIsolate, list, nil); err != nil {
		s.cfg.Log.Debug().Err(err).Int("core", m.Index()).Msg("the core could not be told what is isolated")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.told, m.behind = listing{list.Version, list.Heard}, false
	s.postCores()
}

// isolationsFor returns what a core, nil if it is none yet, has to enforce. Called
// with s.mu held.
func (s *Scheduler) isolationsFor(m *member) ipc.Isolations {
	l := ipc.Isolations{}
	if m != nil {
		l.Heard = m.heard // read before the book, which has at least what these told
	}
	at := time.Now()
	l.Isolations, l.Version = s.cfg.Isolations.Versioned(at)
	l.At = at.UTC().Round(0)
	byWallClock(at, l.Isolations)
	return l
}

// isolations returns what is out of use.
func (s *Scheduler) isolations() []isolation.Isolation {
	at := time.Now()
	list := s.cfg.Isolations.List(at)
	byWallClock(at, list)
	return list
}

// byWallClock gives the isolations their ends by the wall clock as it stands at
// the time.
func byWallClock(at time.Time, list []isolation.Isolation) {
	for n := range list {
		list[n].Until = steady(at.UTC().Round(0), at, list[n].Until)
	}
}

// park keeps a job that an isolation has refused out of the claims until that
// is lifted. It reports false if no isolation blocks the job.
func (s *Scheduler) park(f *flight) bool {
	if !s.isBlocked(&f.entry) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.parked = true
	return true
}

// forgetJob forgets what was noted of a job: it has ended.
func (s *Scheduler) forgetJob(id job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.late, id)
	delete(s.blocked, id)
	delete(s.lateStarts, id)
	s.post(schedule.Dropped{ID: id})
}

// Blocking returns the isolation that keeps a queued job from beginning, if there
// is one.
func (s *Scheduler) Blocking(e *queue.Entry) (isolation.Isolation, bool) {
	path, _ := s.folders.Peek(e.Spec.Workspace.Path)
	run := isolation.Run{Kind: e.Spec.Choices()[e.Choice].Worker, Tenant: e.Spec.Tenant, Workspace: path}
	return s.cfg.Isolations.Blocked(run, time.Now())
}

// isBlocked reports whether an isolation keeps the job from beginning.
func (s *Scheduler) isBlocked(e *queue.Entry) bool {
	_, blocked := s.Blocking(e)
	return blocked
}

// isKindOut reports whether an isolation keeps every run of the kind for the tenant
// from beginning, and that alone.
func (s *Scheduler) isKindOut(kind job.WorkerKind, t job.Tenant) bool {
	i, blocked := s.cfg.Isolations.Blocked(isolation.Run{Kind: kind, Tenant: t}, time.Now())
	return blocked && i.Scope != isolation.Global
}

// parkSlack is by how much later a reset must be than the one that is known to be
// news: providers round differently from answer to answer.
const parkSlack = time.Minute

// parkKind leaves a kind of worker alone until its provider's usage limit is
// reset: its jobs wait, or go on with their next worker, and no attempt is lost.
func (s *Scheduler) parkKind(p policy.Parking) {
	i, blocked := s.cfg.Isolations.Blocked(isolation.Run{Kind: p.Kind}, time.Now())
	if blocked && (i.Until.IsZero() || i.Until.After(p.Until.Add(-parkSlack))) {
		return // another job has just told
	}
	s.escalate(nil, isolation.Escalation{
		Scope: isolation.WorkerScope(p.Kind), Cause: isolation.CauseUsageLimit, Action: isolation.IsolateKind, Time: now(), Until: p.Until.UTC(),
		Message: fmt.Sprintf("the usage limit of %s is reached: %s", p.Kind, p.Message),
	})
}

func (s *Scheduler) saveIsolations() error {
	if s.cfg.IsolationsFile == "" {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	return SaveIsolations(s.cfg.IsolationsFile, s.cfg.Isolations)
}

// expireIsolations lifts what has cooled down, and reports whether there was any.
func (s *Scheduler) expireIsolations() bool {
	gone := s.cfg.Isolations.Expire(time.Now())
	if len(gone) == 0 {
		return false
	}
	for _, i := range gone {
		s.lifted(i, "its cool-down has ended")
	}
	s.isolationsChanged()
	return true
}

func (s *Scheduler) lifted(i isolation.Isolation, why string) {
	s.cfg.Log.Info().Str("scope", string(i.Scope)).Str("cause", string(i.Cause)).Msg("isolation lifted: " + why)
	s.Feed.publish(api.Update{Kind: api.UpdateEscalation, Time: now(), Text: fmt.Sprintf("%s is in use again: %s", i.Scope, why)})
}

// Resume lifts the isolation of a scope: global, worker:KIND, workspace:/PATH,
// or core:N for a core in a crash loop. The error wraps ErrNotIsolated and
// names what is isolated.
func (s *Scheduler) Resume(_ context.Context, scope string) (isolation.Isolation, error) {
	if text, ok := strings.CutPrefix(scope, coreScope); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return isolation.Isolation{}, fmt.Errorf("%q is no scope, want %sN with the number of a core", scope, coreScope)
		}
		if !s.sup.Resume(n) {
			return isolation.Isolation{}, fmt.Errorf("core %d: %w; `scheduler status` shows what is", n, ErrNotIsolated)
		}
		return isolation.Isolation{Scope: isolation.Scope(scope), Cause: isolation.CauseCoreCrashes}, nil
	}
	i, err := LiftIsolation(s.cfg.Isolations, scope)
	if err != nil {
		return i, err
	}
	s.lifted(i, "an operator resumed it")
	s.isolationsChanged()
	return i, nil
}

// LiftIsolation lifts a scope in the book. The error wraps ErrNotIsolated and
// names what is isolated.
func LiftIsolation(b *isolation.Book, scope string) (isolation.Isolation, error) {
	parsed, err := isolation.ParseScope(scope)
	if err != nil {
		return isolation.Isolation{}, err
	}
	b.Expire(time.Now()) // what has cooled down is no longer there to be lifted
	if i, ok := b.Lift(parsed); ok {
		return i, nil
	}
	var names []string
	for _, i := range b.List(time.Now()) {
		names = append(names, string(i.Scope))
	}
	if len(names) == 0 {
		return isolation.Isolation{}, fmt.Errorf("%s: %w; nothing is", parsed, ErrNotIsolated)
	}
	return isolation.Isolation{}, fmt.Errorf("%s: %w; what is: %s", parsed, ErrNotIsolated, strings.Join(names, ", "))
}

// coreScope begins the scope of a core.
const coreScope = "core:"

// stopAll stops what runs; the jobs go back to the queue and no attempt counts.
func (s *Scheduler) stopAll(reason string) {
	s.mu.Lock()
	flights := make([]*flight, 0, len(s.live))
	for _, f := range s.live {
		flights = append(flights, f)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	for _, f := range flights {
		s.stopFlight(ctx, f, true, reason)
	}
}
