package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// ErrNotIsolated is wrapped when there is nothing to lift.
var ErrNotIsolated = errors.New("not isolated")

// LoadIsolations reads the book that SaveIsolations wrote into the document IsolationsFile;
// without one it is empty. What is returned beside it writes that document.
func LoadIsolations(ctx context.Context, docs statedir.Documents) (*isolation.Book, *statedir.SoleWriter, error) {
	b, kept := &isolation.Book{}, statedir.NewSoleWriter(docs, statedir.IsolationsFile)
	data, err := kept.Read(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read what is isolated: %w", err)
	}
	if data == nil {
		return b, kept, nil
	}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, nil, fmt.Errorf("read what is isolated: %s: %w; move the file away to lift all of it", kept.Where(), err)
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
	return b, kept, nil
}

// steady returns, on the monotonic clock too, the end of what was to end at
// until when it was since; zero stays zero.
func steady(now, since, until time.Time) time.Time {
	if until.IsZero() {
		return until
	}
	return now.Add(max(until.Sub(since), 0))
}

// SaveIsolations writes the book: after it, the document has the old content or the new
// one, whatever happens. The error wraps statedir.ErrChanged if another scheduler has
// written it since it was read.
func SaveIsolations(ctx context.Context, kept *statedir.SoleWriter, b *isolation.Book) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := kept.Write(ctx, append(data, '\n')); err != nil {
		return fmt.Errorf("write what is isolated: %w", err)
	}
	return nil
}

// Isolations keeps the book of what is out of use: what changes is made durable, the
// machine and every core are told, and everybody who watches. It owns the book's
// document, what each core has heard of it, and the latest escalations.
type Isolations struct {
	book         *isolation.Book
	kept         *statedir.SoleWriter // nil: the book is not kept
	kinds        kinds
	feed         *Feed
	log          zerolog.Logger
	folders      *workspace.Resolver
	onEscalation func(isolation.Escalation) // may be nil

	post       func(schedule.Event) // tells the machine
	told       func()               // a core may have heard of the latest, or a node is out of use or in use again
	safeStop   func(why string)     // an escalation asks for it
	resumeCore func(index int) bool // has a core in a crash loop tried again
	resumeNode func(name string) bool
	background func(func()) // runs something that the end of the scheduler waits for

	saving sync.Mutex // held while the book is written

	mu          sync.Mutex // guards what follows
	cores       map[*supervisor.Core]*audience
	facts       map[fact]teller              // which core told of what last; bounded by scopes and causes
	escalations []isolation.Escalation       // the latest, the newest last
	out         map[string][]isolation.Scope // what was isolated on nodes at the last change
}

// Pause puts a scope out of use because an operator asks: global, worker:KIND or
// workspace:/PATH, or one of these on a node. What runs goes on; nothing of the scope begins, for so long, or
// until somebody resumes it if that is 0, over restarts too.
func (s *Isolations) Pause(scope, reason string, d time.Duration) (isolation.Isolation, error) {
	if d < 0 {
		return isolation.Isolation{}, fmt.Errorf("for %v: want 0 or more", d)
	}
	i, err := isolation.Paused(scope, reason, now(), d)
	_, what, _ := i.Scope.Host()
	if kind, _, named := what.Worker(); err == nil && named {
		err = s.kinds.check(kind)
	}
	if err != nil {
		return i, err
	}
	if !s.book.Apply(time.Now(), i) {
		return i, queue.Refuse("%s is out of use already, for longer; `scheduler status` shows why", i.Scope)
	}
	s.log.Info().Str("scope", string(i.Scope)).Time("until", i.Until).Msg("paused: " + i.Message)
	s.feed.publish(api.Update{Kind: api.UpdateEscalation, Time: now(), Text: escalationText(isolation.Escalation{Scope: i.Scope, Message: i.Message, Action: i.Action, Until: i.Until})})
	s.change()
	return i, nil
}

// change makes what has changed durable and lets every core know of it. A book that
// cannot be written is enforced all the same, by those who know it.
func (s *Isolations) change() {
	if err := s.save(); err != nil {
		s.log.Error().Err(err).Msg("isolations are not durable")
	}
	s.announce()
	out := s.onNodes()
	s.mu.Lock()
	same := maps.EqualFunc(s.out, out, slices.Equal)
	s.out = out
	s.mu.Unlock()
	if !same {
		s.told()
	}
	s.tellCores()
}

// announce tells the machine what is out of use.
func (s *Isolations) announce() { s.post(schedule.Isolations(s.book.List(time.Now()))) }

// audience is what a core has heard of the book.
type audience struct {
	telling sync.Mutex  // one list at a time
	behind  atomic.Bool // it came up with an older list, and takes no work before it has heard
	node    string      // the core's; "": the scheduler's own host

	// Guarded by Isolations.mu.
	waiting bool    // somebody is about to tell the list
	heard   uint64  // the number of its last escalation
	told    listing // the list that it has
}

// listing says which list of isolations a core has.
type listing struct{ version, heard uint64 }

// start returns what a core that starts has to enforce, and notes that it knows it.
func (s *Isolations) start(a *audience) ipc.Isolations {
	l := s.listFor(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	a.told = listing{l.Version, l.Heard}
	return l
}

// join has a core that is up told from now on.
func (s *Isolations) join(c *supervisor.Core, a *audience) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, version := s.book.Versioned(time.Now())
	a.behind.Store(a.told.version != version)
	s.cores[c] = a
}

// leave forgets a core that is down.
func (s *Isolations) leave(c *supervisor.Core) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cores, c)
}

// tellCores tells every core that does not have the book as it is, without waiting
// for it. A core that could not be told is tried again with each report.
func (s *Isolations) tellCores() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, version := s.book.Versioned(time.Now())
	for c, a := range s.cores {
		if a.waiting || a.told == (listing{version, a.heard}) {
			continue // whoever waits makes its list when it is its turn
		}
		a.waiting = true
		s.background(func() { s.tell(c, a) })
	}
}

// tell tells one core the book, one list at a time.
func (s *Isolations) tell(c *supervisor.Core, a *audience) {
	a.telling.Lock()
	defer a.telling.Unlock()
	s.mu.Lock()
	a.waiting = false
	s.mu.Unlock()
	list := s.listFor(a)
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	defer s.told() // not before: the core would refuse what was just lifted
	if err := c.Call(ctx, ipc.MethodIsolate, list, nil); err != nil {
		s.log.Debug().Err(err).Int("core", c.Index()).Msg("the core could not be told what is isolated")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.told = listing{list.Version, list.Heard}
	a.behind.Store(false)
}

// listFor returns what a core, nil for none in particular, has to enforce.
func (s *Isolations) listFor(a *audience) ipc.Isolations {
	l := ipc.Isolations{}
	if a != nil {
		s.mu.Lock()
		l.Heard = a.heard // read before the book, which has at least what these told
		s.mu.Unlock()
	}
	at := time.Now()
	l.Isolations, l.Version = s.book.Versioned(at)
	if a != nil {
		l.Isolations = isolation.ForHost(a.node, l.Isolations)
	}
	l.At = at.UTC().Round(0)
	byWallClock(at, l.Isolations)
	return l
}

// list returns what is out of use.
func (s *Isolations) list() []isolation.Isolation {
	at := time.Now()
	list := s.book.List(at)
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

// Blocking returns the isolation that keeps a queued job from beginning, if there
// is one.
func (s *Isolations) Blocking(e *queue.Entry) (isolation.Isolation, bool) {
	path, _ := s.folders.Peek(e.Spec.Workspace.Path)
	run := isolation.Run{Kind: e.Spec.Choices()[e.Choice].Worker, Tenant: e.Spec.Tenant, Workspace: path}
	return s.book.Blocked(run, time.Now())
}

// parkSlack is by how much later a reset must be than the one that is known to be
// news: providers round differently from answer to answer.
const parkSlack = time.Minute

// parkKind leaves a kind of worker alone until its provider's usage limit is
// reset: its jobs wait, or go on with their next worker, and no attempt is lost.
func (s *Isolations) parkKind(p policy.Parking) {
	i, blocked := s.book.Blocked(isolation.Run{Kind: p.Kind}, time.Now())
	if blocked && (i.Until.IsZero() || i.Until.After(p.Until.Add(-parkSlack))) {
		return // another job has just told
	}
	s.escalate(nil, isolation.Escalation{
		Scope: isolation.WorkerScope(p.Kind), Cause: isolation.CauseUsageLimit, Action: isolation.IsolateKind, Time: now(), Until: p.Until.UTC(),
		Message: fmt.Sprintf("the usage limit of %s is reached: %s", p.Kind, p.Message),
	})
}

func (s *Isolations) save() error {
	if s.kept == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	return SaveIsolations(ctx, s.kept, s.book)
}

// expire lifts what has cooled down, and reports whether there was any.
func (s *Isolations) expire() bool {
	gone := s.book.Expire(time.Now())
	if len(gone) == 0 {
		return false
	}
	for _, i := range gone {
		s.lifted(i, "its cool-down has ended")
	}
	s.change()
	return true
}

func (s *Isolations) lifted(i isolation.Isolation, why string) {
	s.log.Info().Str("scope", string(i.Scope)).Str("cause", string(i.Cause)).Msg("isolation lifted: " + why)
	s.feed.publish(api.Update{Kind: api.UpdateEscalation, Time: now(), Text: fmt.Sprintf("%s is in use again: %s", i.Scope, why)})
}

// Resume lifts the isolation of a scope: global, node:NAME, worker:KIND, workspace:/PATH,
// or core:N for a core in a crash loop. A node has its cores in a crash loop tried again, too. The
// error wraps ErrNotIsolated and names what is isolated.
func (s *Isolations) Resume(scope string) (isolation.Isolation, error) {
	if text, ok := strings.CutPrefix(scope, coreScope); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return isolation.Isolation{}, fmt.Errorf("%q is no scope, want %sN with the number of a core", scope, coreScope)
		}
		if !s.resumeCore(n) {
			return isolation.Isolation{}, fmt.Errorf("core %d: %w; `scheduler status` shows what is", n, ErrNotIsolated)
		}
		return isolation.Isolation{Scope: isolation.Scope(scope), Cause: isolation.CauseCoreCrashes}, nil
	}
	i, err := LiftIsolation(s.book, scope)
	if name, ok := isolation.Scope(scope).Node(); ok && s.resumeNode(name) && err != nil {
		return isolation.Isolation{Scope: isolation.Scope(scope), Cause: isolation.CauseCoreCrashes}, nil
	}
	if err != nil {
		return i, err
	}
	s.lifted(i, "an operator resumed it")
	s.change()
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
