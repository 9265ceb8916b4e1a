package sqlite

import (
	"sync/atomic"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// account names a row of the ledger.
type account struct {
	tenant job.Tenant
	step   int64
	agent  job.AgentID
	worker job.WorkerKind
	model  string
}

// charge is what is added to a row of the ledger.
type charge struct {
	amounts
	unknown, wall, attempts, completed int64
}

func (c charge) add(d charge) charge {
	return charge{c.amounts.add(d.amounts, 1), c.unknown + d.unknown, c.wall + d.wall, c.attempts + d.attempts, c.completed + d.completed}
}

// accounts is what the writer charges, and what it knows of grants. Charges are
// added up over a group and written before its commit, and not sooner: many attempts that
// end at once cost one row, and no request that fails takes those of others back.
type accounts struct {
	tx      *tx
	request []posting          // of the request under way
	group   map[account]charge // of those of the group that succeeded
	grants  grantBook
	// full are the owners that may have used up their grants, for readers; nil if that
	// is not known. What it points to does not change.
	full atomic.Pointer[map[queue.Owner]bool]
}

type posting struct {
	account
	charge
}

// post charges an account for the request under way.
func (s *accounts) post(a account, c charge) {
	if c != (charge{}) {
		s.request = append(s.request, posting{a, c})
	}
}

// end keeps or forgets what the request has charged.
func (s *accounts) end(succeeded bool) {
	if succeeded {
		for _, p := range s.request {
			if s.group == nil {
				s.group = map[account]charge{}
			}
			s.group[p.account] = s.group[p.account].add(p.charge)
			s.grants.charge(p)
		}
	}
	s.request = s.request[:0]
}

// forget drops the charges of a group that failed.
func (s *accounts) forget() {
	clear(s.group)
	s.grants = grantBook{}
	s.full.Store(nil)
}

// publish tells readers who may have used up a grant once the group is committed.
func (s *accounts) publish() {
	if !s.grants.loaded {
		s.full.Store(nil)
		return
	}
	if known := s.full.Load(); known != nil && len(*known) == 0 && len(s.grants.full) == 0 {
		return
	}
	full := make(map[queue.Owner]bool, len(s.grants.full))
	for owner := range s.grants.full {
		full[owner] = true
	}
	s.full.Store(&full)
}

const addToLedger = `INSERT INTO ledger (tenant, step, agent, worker, model, input, cached, cache_write, output, reasoning, cost,
		unknown, steps, commands, command_ms, wall, attempts, completed)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (tenant, step, agent, worker, model) DO UPDATE SET input = ledger.input + excluded.input, cached = ledger.cached + excluded.cached,
		cache_write = ledger.cache_write + excluded.cache_write, output = ledger.output + excluded.output, reasoning = ledger.reasoning + excluded.reasoning,
		cost = ledger.cost + excluded.cost, unknown = ledger.unknown + excluded.unknown, steps = ledger.steps + excluded.steps,
		commands = ledger.commands + excluded.commands, command_ms = ledger.command_ms + excluded.command_ms, wall = ledger.wall + excluded.wall,
		attempts = ledger.attempts + excluded.attempts, completed = ledger.completed + excluded.completed`

// writeCharges writes what the group has charged.
func (s *accounts) writeCharges() error {
	for a, c := range s.group {
		err := s.tx.exec(addToLedger, string(a.tenant), a.step, string(a.agent), string(a.worker), a.model,
			c.Input, c.Cached, c.CacheWrite, c.Output, c.Reasoning, c.Cost, c.unknown, c.Steps, c.Commands, c.CommandMS,
			c.wall, c.attempts, c.completed)
		if err != nil {
			return err
		}
	}
	clear(s.group)
	return nil
}
