package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Accounts implements queue.Ledger.
func (s *Store) Accounts(ctx context.Context, f queue.AccountFilter) ([]queue.Account, error) {
	for _, d := range f.By {
		if !slices.Contains(queue.Dimensions(), d) {
			return nil, fmt.Errorf("accounts by %q: there is no such dimension", d)
		}
	}
	return read(ctx, s, "read accounts", func(d *db) ([]queue.Account, error) { return d.accounts(f) })
}

// sum names an account as it is read.
type sum struct {
	account
	day string
}

func (d *db) accounts(f queue.AccountFilter) ([]queue.Account, error) {
	by := func(d queue.Dimension) bool { return slices.Contains(f.By, d) }
	column := func(name string, dims ...queue.Dimension) string {
		if slices.ContainsFunc(dims, by) {
			return name
		}
		return ""
	}
	zone := f.Zone
	if zone == nil {
		zone = time.UTC
	}
	// What is not asked for is left empty; days are put together here, since
	// only Go knows the zone.
	var groups, columns []string
	for _, name := range []string{column("tenant", queue.ByTenant, queue.ByAgent), column("agent", queue.ByAgent),
		column("worker", queue.ByWorker), column("model", queue.ByModel)} {
		columns = append(columns, cmp.Or(name, "''"))
		if name != "" {
			groups = append(groups, name)
		}
	}
	columns = append(columns, cmp.Or(column("step", queue.ByDay), "0"))
	if by(queue.ByDay) {
		groups = append(groups, "step")
	}
	where, args := ledgerConditions(f)
	query := `SELECT ` + strings.Join(columns, ", ") + `, ` + ledgerSums + ` FROM ledger` + where
	if len(groups) > 0 {
		query += ` GROUP BY ` + strings.Join(groups, ", ")
	}
	sums := map[sum]charge{}
	err := d.rows(query, args, func(row scanner) error {
		var key sum
		var c charge
		err := row.Scan(&key.tenant, &key.agent, &key.worker, &key.model, &key.step,
			&c.Input, &c.Cached, &c.CacheWrite, &c.Output, &c.Reasoning, &c.Cost, &c.unknown, &c.Steps, &c.Commands, &c.CommandMS,
			&c.wall, &c.attempts, &c.completed)
		if by(queue.ByDay) {
			key.day = stepStart(key.step).In(zone).Format(time.DateOnly)
		}
		key.step = 0
		sums[key] = sums[key].add(c)
		return err
	})
	if err != nil {
		return nil, err
	}
	list := make([]queue.Account, 0, len(sums))
	for key, c := range sums {
		list = append(list, c.account(key))
	}
	slices.SortFunc(list, func(a, b queue.Account) int { return compareAccounts(f.By, &a, &b) })
	return list, nil
}

const ledgerSums = `coalesce(sum(input), 0), coalesce(sum(cached), 0), coalesce(sum(cache_write), 0), coalesce(sum(output), 0),
	coalesce(sum(reasoning), 0), coalesce(sum(cost), 0), coalesce(sum(unknown), 0), coalesce(sum(steps), 0), coalesce(sum(commands), 0),
	coalesce(sum(command_ms), 0), coalesce(sum(wall), 0), coalesce(sum(attempts), 0), coalesce(sum(completed), 0)`

func ledgerConditions(f queue.AccountFilter) (where string, args []any) {
	var terms []string
	add := func(given bool, term string, value any) {
		if given {
			terms, args = append(terms, term), append(args, value)
		}
	}
	add(f.Tenant != "", `tenant = ?`, string(f.Tenant))
	add(!f.Since.IsZero(), `step >= ?`, stepOf(f.Since))
	add(!f.Until.IsZero(), `step < ?`, stepOf(f.Until))
	add(f.Agent != "", `agent = ?`, string(f.Agent))
	add(f.Worker != "", `worker = ?`, string(f.Worker))
	add(f.Model != "", `model = ?`, f.Model)
	if len(terms) == 0 {
		return "", nil
	}
	return ` WHERE ` + strings.Join(terms, ` AND `), args
}

// account returns what was charged as an account.
func (c charge) account(key sum) queue.Account {
	return queue.Account{
		Tenant: key.tenant, Agent: key.agent, Worker: key.worker, Model: key.model, Day: key.day,
		Usage: job.Usage{
			InputTokens: c.Input, CachedTokens: c.Cached, CacheWriteTokens: c.CacheWrite, OutputTokens: c.Output, ReasoningTokens: c.Reasoning,
			CostUSD: float64(c.Cost) / usdParts, CostKnown: c.unknown == 0 && (c.Input+c.Output > 0 || c.Cost > 0),
			Steps: c.Steps, Commands: c.Commands, CommandMillis: c.CommandMS,
		},
		Wall: job.Duration(c.wall), Attempts: c.attempts, Completed: c.completed,
	}
}

// compareAccounts orders by the dimensions in the order in which they were asked for.
func compareAccounts(by []queue.Dimension, a, b *queue.Account) int {
	for _, d := range by {
		var c int
		switch d {
		case queue.ByTenant:
			c = cmp.Compare(a.Tenant, b.Tenant)
		case queue.ByAgent:
			c = cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Agent, b.Agent))
		case queue.ByWorker:
			c = cmp.Compare(a.Worker, b.Worker)
		case queue.ByModel:
			c = cmp.Compare(a.Model, b.Model)
		case queue.ByDay:
			c = cmp.Compare(a.Day, b.Day)
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// Grants implements queue.Ledger.
func (s *Store) Grants(ctx context.Context) ([]queue.Grant, error) {
	return read(ctx, s, "read grants", func(d *db) ([]queue.Grant, error) { return collect(d, scanGrant, selectGrants) })
}
