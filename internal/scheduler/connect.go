package scheduler

import (
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// connect makes the parts of a scheduler and gives each what it needs of the others.
func connect(s *Scheduler) {
	cfg, seed := &s.cfg, seedOf(s.cfg.Instance)
	k := kinds{cfg.Traits, func() map[job.WorkerKind]job.WorkerSettings {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.cfg.Settings.Workers
	}}
	s.Feed = &Feed{
		store: cfg.Store, log: cfg.Log, observer: cfg.Observer,
		forget: func(e *queue.Entry) {
			s.loop.post(schedule.Dropped{ID: e.ID})
			s.Children.ended(e)
			s.Conversations.ended(e)
		},
		follow: func(e *queue.Entry) { s.Followers.follow(e) }, judge: func(e *queue.Entry) { s.Judge.judge(e) },
	}
	s.fleet = &fleet{
		count: cfg.Cores, instance: cfg.Instance, log: cfg.Log, loop: s.loop, renews: s.renewsPermits, settings: cfg.Settings, store: cfg.Store, lease: cfg.Lease, nodesOnly: cfg.NodesOnly, keepFiles: cfg.KeepFiles, look: cfg.Mirrors, background: s.works.Go,
		members: map[*supervisor.Core]*member{}, starting: map[*supervisor.Core]*member{}, mourned: map[schedule.CoreID]*supervisor.Core{},
	}
	s.fleet.rates, s.fleet.ledger = cfg.Rates, newLedger(s.fleet.runOn)
	s.Followers = (&Followers{
		store: cfg.Store, feed: s.Feed, log: cfg.Log, jobs: s, kinds: k, dispatch: s.poke, open: newOpenBatches(cfg.Store, k), fileHere: cfg.FileHere,
	}).init()
	s.Judge = &Judge{store: cfg.Store, evaluator: cfg.Evaluator, feed: s.Feed, log: cfg.Log, apply: s.apply, post: s.loop.post, seed: seed, wake: newBell()}
	s.Approvals = &Approvals{
		store: cfg.Store, feed: s.Feed, log: cfg.Log, follow: s.Followers.follow, dispatch: s.poke, onQuestion: cfg.OnQuestion, seed: seed, asked: newBell(),
	}
	s.Links = &Links{store: cfg.Store, log: cfg.Log}
	s.Runs = &Runs{
		store: cfg.Store, own: cfg.Batch, apply: s.apply, submit: s.Submit, cancel: s.Cancel, post: s.loop.post, follow: s.Followers.look, dispatch: s.poke,
		env: map[job.BatchID]map[string]string{},
	}
	s.Grants = &Grants{store: cfg.Store, log: cfg.Log, runs: s.loop.runs, call: s.fleet.call}
	s.Conversations = &Conversations{
		store: cfg.Store, feed: s.Feed, log: cfg.Log, grants: s.Grants, runs: s.loop.runs, call: s.fleet.call, flying: s.fleet.flying, dispatch: s.poke, admit: s.admit, kinds: k,
		onQuestion: cfg.OnQuestion, wake: newBell(), due: map[job.ID]bool{}, locks: map[job.ID]*jobLock{}, stops: map[job.ID]stopping{},
	}
	s.fleet.talks = s.Conversations
	s.Children = &Children{
		store: cfg.Store, feed: s.Feed, log: cfg.Log, flying: s.fleet.flying, lock: s.Conversations.lock, cancel: s.cancel, fileHere: cfg.FileHere,
		bounds: func() ChildBounds {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.cfg.Children
		},
		dispatch: s.poke, wake: newBell(), due: map[job.ID]bool{},
	}
	s.streams = &streams{open: s.Followers.open, look: s.Followers.look, loop: s.loop, fleet: s.fleet, log: cfg.Log, of: map[job.ID]*streaming{}}
	s.steps = &steps{keep: cfg.Store, feed: s.Feed, log: cfg.Log, flying: s.fleet.flying}
	s.Isolations = &Isolations{
		book: cfg.Isolations, kept: cfg.KeepIsolations, kinds: k, feed: s.Feed, log: cfg.Log, folders: s.folders, onEscalation: cfg.OnEscalation,
		post: s.loop.post, safeStop: s.safeStop, resumeCore: func(index int) bool { return s.fleet.sup.Resume(index) }, background: s.works.Go,
		told: s.fleet.told,
		resumeNode: func(name string) bool {
			n, ok := s.fleet.sup.(NodeResumer)
			return ok && n.ResumeNode(name)
		},
		cores: map[*supervisor.Core]*audience{}, facts: map[fact]teller{},
	}
	s.fleet.unstreamed = s.streams.lacks
	s.fleet.feed, s.fleet.isolations = s.Feed, s.Isolations
	given := &patches{store: cfg.Store, here: cfg.FileHere, runOn: s.fleet.runOn, log: cfg.Log}
	s.fleet.answer = answers{
		steps: s.steps, streams: s.streams, parcels: &parcels{kept: cfg.Parcels, flying: s.fleet.flying},
		patches: given, ledger: s.fleet.ledger, talks: s.Conversations, kids: s.Children,
	}.core
	s.reader = &reader{store: cfg.Store, feed: s.Feed, loop: s.loop, folders: s.folders, holder: s.holder, lease: cfg.Lease}
	s.applier = &applier{
		log: cfg.Log, apply: s.apply, feed: s.Feed, fleet: s.fleet, streams: s.streams, steps: s.steps, patches: given, followers: s.Followers,
		judge: s.Judge, approvals: s.Approvals, runs: s.Runs, grants: s.Grants, talks: s.Conversations, kids: s.Children, isolations: s.Isolations,
	}
	s.Explain = &Explain{
		store: cfg.Store, feed: s.Feed, log: cfg.Log, isolations: s.Isolations, folders: s.folders, loop: s.loop, batch: cfg.Batch, idle: cfg.idle, standby: cfg.standby,
	}
}
