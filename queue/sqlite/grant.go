package sqlite

import (
	"fmt"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// grantBook is what the writer knows of grants, so that neither a claim nor an
// Enqueue asks the file as long as nothing is over or dead. It holds good until
// another connection has written to the file.
type grantBook struct {
	loaded  bool
	version int64 // PRAGMA data_version when it was loaded
	checked bool  // against the file, in this group
	step    int64 // the latest at which it was asked

	balances bool // some tenant has one, see credit.go
	credits  bool // some tenant has a history of them, and perhaps no balance any more

	dead    map[queue.Owner]bool
	bounded map[queue.Owner]*use
	full    map[queue.Owner]*use // of bounded: those that may have used up their grant
}

// use is what an owner has used since a step. It may be more than what counts,
// if that step lies before the window by now: then it is at most asked again.
type use struct {
	grant              queue.Grant
	from               int64
	tokens, cost, wall int64
}

// bounds reports whether a grant says how much may be used.
func bounds(g *queue.Grant) bool { return g.Tokens > 0 || g.CostUSD > 0 || g.Wall > 0 }

func (u *use) full() bool {
	g := &u.grant
	return g.Tokens > 0 && u.tokens >= g.Tokens || g.CostUSD > 0 && u.cost >= parts(g.CostUSD) || g.Wall > 0 && u.wall >= int64(g.Wall)
}

// since returns the first step that counts at now.
func (u *use) since(now time.Time) int64 {
	if u.grant.Window == 0 {
		return math.MinInt64
	}
	return stepOf(now.Add(-u.grant.Window.Std()))
}

// charge adds what was charged to what its owners have used.
func (b *grantBook) charge(p posting) {
	owner := queue.Owner{Tenant: p.tenant, Agent: p.agent}
	b.add(owner, p)
	if owner.Agent != "" {
		b.add(queue.Owner{Tenant: p.tenant}, p)
	}
}

func (b *grantBook) add(owner queue.Owner, p posting) {
	u := b.bounded[owner]
	if u == nil || p.step < u.from {
		return
	}
	u.add(p.charge)
	if u.full() {
		b.full[owner] = u
	}
}

func (u *use) add(c charge) {
	u.tokens, u.cost, u.wall = u.tokens+c.Input+c.Output, u.cost+c.Cost, u.wall+c.wall
}

// grantsNow returns the book, as the file is now.
func (s *accounts) grantsNow(now time.Time) (*grantBook, error) {
	b := &s.grants
	step := stepOf(now)
	if step < b.step {
		b.loaded = false // a clock was put back: what was left out may count again
	}
	b.step = step
	version, current, err := s.current()
	if err != nil {
		return nil, err
	}
	if current {
		return b, nil
	}
	fresh := grantBook{loaded: true, checked: true, version: version, step: step,
		dead: map[queue.Owner]bool{}, bounded: map[queue.Owner]*use{}, full: map[queue.Owner]*use{}}
	grants, err := collect(s.tx.db, scanGrant, selectGrants)
	if err != nil {
		return nil, err
	}
	for _, g := range grants {
		if g.Dead {
			fresh.dead[g.Owner] = true
		}
		if bounds(&g) {
			fresh.bounded[g.Owner] = &use{grant: g}
		}
	}
	if fresh.balances, err = s.tx.hasBalances(); err != nil {
		return nil, err
	}
	if fresh.credits, err = s.tx.hasCredits(); err != nil {
		return nil, err
	}
	for owner, u := range fresh.bounded {
		if err := s.measure(u, u.since(now)); err != nil {
			return nil, err
		}
		if u.full() {
			fresh.full[owner] = u
		}
	}
	*b = fresh
	return b, nil
}

// current reports whether the book is as the file is now, of which it returns the version.
func (s *accounts) current() (version int64, current bool, err error) {
	b := &s.grants
	if b.loaded && b.checked {
		return b.version, true, nil
	}
	version, err = s.tx.dataVersion()
	b.checked = err == nil && b.loaded && b.version == version
	return version, b.checked, err
}

// noCredits reports whether it is known that no tenant has a balance, or a history of one.
// It reads nothing that is not known.
func (s *accounts) noCredits() (bool, error) {
	_, current, err := s.current()
	return current && !s.grants.balances && !s.grants.credits, err
}

// measure asks the ledger what an owner has used since a step, and adds what the group
// has charged so far, which is not in it yet.
func (s *accounts) measure(u *use, from int64) error {
	if err := u.read(s.tx.db, from); err != nil {
		return err
	}
	for a, c := range s.group {
		if a.step >= from && a.tenant == u.grant.Tenant && (u.grant.Agent == "" || a.agent == u.grant.Agent) {
			u.add(c)
		}
	}
	return nil
}

// read asks the ledger what the owner has used since a step.
func (u *use) read(d *db, from int64) error {
	u.from = from
	query, args := `SELECT coalesce(sum(input + output), 0), coalesce(sum(cost), 0), coalesce(sum(wall), 0) FROM ledger WHERE tenant = ? AND step >= ?`,
		[]any{string(u.grant.Tenant), from}
	if u.grant.Agent != "" {
		query, args = query+` AND agent = ?`, append(args, string(u.grant.Agent))
	}
	_, err := d.row(query, args, &u.tokens, &u.cost, &u.wall)
	return err
}

// overGrants returns what says whether an owner's jobs are passed over at now,
// since it, or its tenant as a whole, has used up its grant; nil if nobody has.
// It holds good within the request.
func (s *accounts) overGrants(now time.Time) (func(job.Tenant, job.AgentID) bool, error) {
	b, err := s.grantsNow(now)
	if err != nil {
		return nil, fmt.Errorf("read the grants: %w", err)
	}
	for owner, u := range b.full {
		if from := u.since(now); from != u.from {
			if err := s.measure(u, from); err != nil {
				return nil, fmt.Errorf("read what %s has used: %w", owner.Tenant, err)
			}
		}
		if !u.full() {
			delete(b.full, owner)
		}
	}
	if len(b.full) == 0 {
		return nil, nil
	}
	full := b.full
	return func(tenant job.Tenant, agent job.AgentID) bool {
		return full[queue.Owner{Tenant: tenant}] != nil || agent != "" && full[queue.Owner{Tenant: tenant, Agent: agent}] != nil
	}, nil
}

// refuseDead gives ErrDeadOwner if an entry's owner is dead.
func (s *accounts) refuseDead(entries []newEntry) error {
	if len(entries) == 0 {
		return nil
	}
	b, err := s.grantsNow(entries[0].CreatedAt)
	if err != nil {
		return fmt.Errorf("read the grants: %w", err)
	}
	if len(b.dead) == 0 {
		return nil
	}
	for _, e := range entries {
		for _, owner := range []queue.Owner{{Tenant: e.Spec.Tenant}, {Tenant: e.Spec.Tenant, Agent: e.Spec.Agent}} {
			if b.dead[owner] {
				return fmt.Errorf("job %s: %w", e.ID, &queue.DeadOwnerError{Owner: owner})
			}
		}
	}
	return nil
}

// setGrant stores a grant in place of the owner's, or removes that.
func (s *accounts) setGrant(g queue.Grant) error {
	if err := g.Validate(); err != nil {
		return err
	}
	s.grants, s.tx.touched.moved = grantBook{}, true
	if !g.Dead && !bounds(&g) {
		return s.tx.exec(`DELETE FROM grants WHERE tenant = ? AND agent = ?`, string(g.Tenant), string(g.Agent))
	}
	return s.tx.exec(`INSERT INTO grants (tenant, agent, dead, tokens, cost, wall, "window") VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, agent) DO UPDATE SET dead = excluded.dead, tokens = excluded.tokens, cost = excluded.cost, wall = excluded.wall, "window" = excluded."window"`,
		string(g.Tenant), string(g.Agent), g.Dead, g.Tokens, g.CostUSD, int64(g.Wall), int64(g.Window))
}

const (
	grantColumns = `SELECT tenant, agent, dead, tokens, cost, wall, "window" FROM grants`
	selectGrants = grantColumns + ` ORDER BY tenant, agent`
	selectGrant  = grantColumns + ` WHERE tenant = ? AND agent = ?`
)

func scanGrant(rows scanner) (g queue.Grant, err error) {
	err = rows.Scan(&g.Tenant, &g.Agent, &g.Dead, &g.Tokens, &g.CostUSD, &g.Wall, &g.Window)
	return g, err
}
