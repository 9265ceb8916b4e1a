package sqlite

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Balances are records: of each tenant one in balanceSpace, and in a space of its own
// one for each entry of its history. What a claim has taken is under its fence, so that
// whatever ends the claim finds it.
const balanceSpace = "credits"

// topUpSpace has a record for each TopUp that had a key, under that.
const topUpSpace = "credit-keys"

// keyed is the value of a record of topUpSpace.
type keyed struct {
	Tenant  job.Tenant `json:"tenant"`
	Credits int64      `json:"credits"`
}

// balance is the value of a record of balanceSpace.
type balance struct {
	Since job.Fence `json:"since"` // it pays for claims after that
	Added int64     `json:"added"`
	Taken int64     `json:"taken"`
}

func (b balance) of(t job.Tenant) queue.Balance {
	return queue.Balance{Tenant: t, Added: b.Added, Taken: b.Taken}
}

// credit is the value of a record of a history.
type credit struct {
	Credits int64       `json:"credits"`
	Job     job.ID      `json:"job,omitempty"`
	Attempt int         `json:"attempt,omitempty"`
	Agent   job.AgentID `json:"agent,omitempty"`
	By      string      `json:"by,omitempty"`
}

func historySpace(t job.Tenant) string { return balanceSpace + "/" + string(t) }

// claimKey is where what a claim took is in the history. What is asked for has the key of
// the latest claim with afterClaim and a number behind it, which is between that and the
// next one.
func claimKey(f job.Fence) string { return fmt.Sprintf("%019d", int64(f)) }

const afterClaim = "+"

// SetPrices says what runs take from balances from now on; without it, they are
// queue.DefaultPrices. What was taken stays.
func (s *Store) SetPrices(p queue.Prices) { s.prices.Store(&p) }

// Prices implements queue.Ledger.
func (s *Store) Prices() queue.Prices { return pricesIn(&s.prices) }

func pricesIn(p *atomic.Pointer[queue.Prices]) queue.Prices {
	if set := p.Load(); set != nil {
		return *set
	}
	return queue.DefaultPrices()
}

// credits are the balances of tenants, within a transaction.
type credits struct {
	tx     *tx
	prices *atomic.Pointer[queue.Prices] // the store's
}

// balance returns a tenant's balance; false if it has none.
func (d *db) balance(tenant job.Tenant) (b balance, has bool, err error) {
	r, has, err := d.record(balanceSpace, string(tenant))
	if err == nil {
		err = decode(string(r.Value), &b)
	}
	if err != nil {
		return b, false, fmt.Errorf("read the balance of tenant %s: %w", tenant, err)
	}
	return b, has, nil
}

// hasBalances reports whether any tenant has one.
func (d *db) hasBalances() (bool, error) {
	_, has, err := d.number(`SELECT 1 FROM records WHERE space = ? LIMIT 1`, balanceSpace)
	return has, err
}

// hasCredits reports whether any tenant has a history of credits.
func (d *db) hasCredits() (bool, error) {
	_, has, err := d.number(`SELECT 1 FROM records WHERE space >= ? AND space < ? LIMIT 1`, historySpace(""), behind(historySpace("")))
	return has, err
}

// note sets the record of a balance or of an entry of a history.
func (cs *credits) note(space, key string, value any, at time.Time) error {
	text, err := encode(value)
	if err != nil {
		return err
	}
	return cs.tx.setRecord(space, key, text, at)
}

func (cs *credits) topUp(op queue.TopUp) error {
	if err := op.Validate(); err != nil {
		return err
	}
	if done, err := cs.done(op); err != nil || done {
		return err
	}
	b, has, err := cs.tx.balance(op.Tenant)
	if err != nil {
		return err
	}
	after, err := b.of(op.Tenant).Add(op.Credits)
	if err != nil {
		return err
	}
	last, _, err := cs.tx.number(selectFence)
	if err != nil {
		return err
	}
	if b.Added = after.Added; !has {
		b.Since = job.Fence(last)
	}
	if err := cs.note(balanceSpace, string(op.Tenant), b, op.Now); err != nil {
		return err
	}
	if op.Key != "" {
		if err := cs.note(topUpSpace, op.Key, keyed{op.Tenant, op.Credits}, op.Now); err != nil {
			return err
		}
	}
	return cs.asked(op.Tenant, last, credit{Credits: op.Credits, By: op.By}, op.Now)
}

// done reports whether op was applied before, by its key.
func (cs *credits) done(op queue.TopUp) (bool, error) {
	if op.Key == "" {
		return false, nil
	}
	r, found, err := cs.tx.record(topUpSpace, op.Key)
	if err != nil || !found {
		return false, err
	}
	var was keyed
	if err := decode(string(r.Value), &was); err != nil {
		return false, fmt.Errorf("read what was added with key %s: %w", op.Key, err)
	}
	if was != (keyed{op.Tenant, op.Credits}) {
		return false, fmt.Errorf("credits of tenant %s: with this key tenant %s was given %d: %w", op.Tenant, was.Tenant, was.Credits, queue.ErrExists)
	}
	return true, nil
}

func (cs *credits) dropBalance(op queue.DropBalance) error {
	b, has, err := cs.tx.balance(op.Tenant)
	if err == nil && !has {
		err = fmt.Errorf("balance of tenant %s: %w", op.Tenant, queue.ErrNotFound)
	}
	if err != nil {
		return err
	}
	last, _, err := cs.tx.number(selectFence)
	if err != nil {
		return err
	}
	if err := cs.tx.deleteRecord(balanceSpace, string(op.Tenant)); err != nil {
		return err
	}
	return cs.asked(op.Tenant, last, credit{Credits: -b.of(op.Tenant).Left(), By: op.By}, op.Now)
}

// asked adds what somebody has asked for to a tenant's history, after the claim with the
// fence last.
func (cs *credits) asked(tenant job.Tenant, last int64, c credit, at time.Time) error {
	cs.tx.accounts.grants, cs.tx.touched.moved = grantBook{}, true
	space, key := historySpace(tenant), claimKey(job.Fence(last))+afterClaim
	n, _, err := cs.tx.number(`SELECT count(*) FROM records WHERE space = ? AND key >= ? AND key < ?`, space, key, behind(key))
	if err != nil {
		return err
	}
	return cs.note(space, fmt.Sprintf("%s%06d", key, n), c, at)
}

// purse is what is left of balances within one claim.
type purse struct {
	credits *credits
	prices  queue.Prices
	over    bool // claims what they are too small for, too
	left    map[job.Tenant]int64
}

// bottomless is what is left of the balance that a tenant does not have.
const bottomless = math.MaxInt64

// purse returns a purse for a claim; nil if nobody has a balance.
func (cs *credits) purse(spec *queue.ClaimSpec) (*purse, error) {
	book, err := cs.tx.accounts.grantsNow(spec.Now)
	if err != nil || !book.balances {
		return nil, err
	}
	return &purse{credits: cs, prices: pricesIn(cs.prices), over: spec.OverGrants, left: map[job.Tenant]int64{}}, nil
}

// pays sets the price of a run aside; false if too little is left.
func (p *purse) pays(e *queue.Entry) (bool, error) {
	if p == nil {
		return true, nil
	}
	left, known := p.left[e.Spec.Tenant]
	if !known {
		b, has, err := p.credits.tx.balance(e.Spec.Tenant)
		if err != nil {
			return false, err
		}
		if left = b.Added - b.Taken; !has {
			left = bottomless
		}
		p.left[e.Spec.Tenant] = left
	}
	price := p.prices.Of(e.Spec.Agent)
	switch {
	case left == bottomless || price == 0:
		return true, nil
	case left < price && !p.over:
		return false, nil
	}
	p.left[e.Spec.Tenant] = left - price
	return true, nil
}

// take takes from balances what was set aside for what is claimed.
func (p *purse) take(rows []*entryRow, at time.Time) error {
	if p == nil {
		return nil
	}
	for _, row := range rows {
		e := &row.Entry
		price := p.prices.Of(e.Spec.Agent)
		if price == 0 || p.left[e.Spec.Tenant] == bottomless {
			continue
		}
		c := credit{Credits: -price, Job: e.ID, Attempt: e.Attempts + 1, Agent: e.Spec.Agent}
		if err := p.credits.note(historySpace(e.Spec.Tenant), claimKey(e.Fence), c, at); err != nil {
			return err
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(p.left)) {
		b, has, err := p.credits.tx.balance(tenant)
		if err != nil {
			return err
		}
		if taken := b.Added - p.left[tenant]; has && taken != b.Taken {
			b.Taken = taken
			if err := p.credits.note(balanceSpace, string(tenant), b, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveBack returns what the claim of an entry has taken, since it ends without an attempt
// that counts.
func (e *standing) giveBack(at time.Time) error {
	if none, err := e.tx.accounts.noCredits(); err != nil || none {
		return err
	}
	space, key := historySpace(e.tenant), claimKey(e.fence)
	r, took, err := e.tx.record(space, key)
	if err != nil || !took {
		return err
	}
	var c credit
	if err := decode(string(r.Value), &c); err != nil {
		return fmt.Errorf("give credits back: %w", err)
	}
	b, has, err := e.tx.balance(e.tenant)
	if err != nil {
		return err
	}
	if err := e.tx.deleteRecord(space, key); err != nil || !has || e.fence <= b.Since {
		return err
	}
	b.Taken += c.Credits
	// Only a run that costs more than there was can have been passed over.
	e.tx.touched.moved = e.tx.touched.moved || b.Added-b.Taken+c.Credits < e.tx.credits.dearest()
	return e.tx.credits.note(balanceSpace, string(e.tenant), b, at)
}

// dearest is the highest price of a run.
func (cs *credits) dearest() int64 {
	p := pricesIn(cs.prices)
	most := p.Run
	for _, price := range p.Agents {
		most = max(most, price)
	}
	return most
}

// poor reports whether a head's tenant has a balance that is too small for it.
func (r *headsRead) poor(tenant job.Tenant, agent job.AgentID) (bool, error) {
	if r.balances == nil {
		any, err := r.hasBalances()
		if err != nil {
			return false, err
		}
		r.balances, r.noBalances = map[job.Tenant]int64{}, !any
	}
	if r.noBalances {
		return false, nil
	}
	left, known := r.balances[tenant]
	if !known {
		b, has, err := r.balance(tenant)
		if err != nil {
			return false, err
		}
		if left = b.Added - b.Taken; !has {
			left = bottomless
		}
		r.balances[tenant] = left
	}
	return left < r.store.Prices().Of(agent), nil
}

// Balances implements queue.Ledger.
func (s *Store) Balances(ctx context.Context) ([]queue.Balance, error) {
	return read(ctx, s, "read balances", func(d *db) ([]queue.Balance, error) {
		return collect(d, func(row scanner) (queue.Balance, error) {
			var b balance
			r, err := scanRecord(row)
			if err == nil {
				err = decode(string(r.Value), &b)
			}
			return b.of(job.Tenant(r.Key)), err
		}, selectRecords+` ORDER BY key`, balanceSpace)
	})
}

// Credits implements queue.Ledger. A limit below 1 means 1000.
func (s *Store) Credits(ctx context.Context, t job.Tenant, before string, limit int) ([]queue.Credit, error) {
	if before == "" {
		before = behind("")
	}
	return read(ctx, s, "read the credits of tenant "+string(t), func(d *db) ([]queue.Credit, error) {
		return collect(d, func(row scanner) (queue.Credit, error) {
			var c credit
			r, err := scanRecord(row)
			if err == nil {
				err = decode(string(r.Value), &c)
			}
			return queue.Credit{ID: r.Key, At: r.At, Credits: c.Credits, Job: c.Job, Attempt: c.Attempt, Agent: c.Agent, By: c.By}, err
		}, selectRecords+` AND key < ? ORDER BY key DESC LIMIT ?`, historySpace(t), before, limitOf(limit))
	})
}

// shedCredits forgets what runs took that were claimed before a time, and not what was
// asked for. Claims lie in a history in the order in which they were made.
func (p *pruneTurn) shedCredits(before time.Time) (done bool, err error) {
	if before.IsZero() {
		return true, nil
	}
	spaces, err := collect(p.db, scanText, selectSpaces, historySpace(""), behind(historySpace("")))
	for _, space := range spaces {
		key := behind("")
		if _, err := p.row(`SELECT key FROM records WHERE space = ? AND at >= ? ORDER BY key LIMIT 1`, []any{space, before}, &key); err != nil {
			return false, err
		}
		done, err := p.shed(`DELETE FROM records WHERE seq IN (SELECT r.seq FROM records r WHERE r.space = ? AND r.key < ? AND length(r.key) = 19
			AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.state = 'dispatched' AND e.fence = CAST(r.key AS BIGINT)) LIMIT ?)`, space, key)
		if err != nil || !done {
			return false, err
		}
	}
	return true, err
}
