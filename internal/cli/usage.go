package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// usageOptions are the flags of `usage`.
type usageOptions struct {
	by                           []string
	since, until                 string
	tenant, agent, worker, model string
}

func usageCommand(at *target) *cobra.Command {
	var o usageOptions
	cmd := &cobra.Command{
		Use: "usage", Short: "Show what was used: tokens, cost, time, attempts", Args: cobra.NoArgs,
		Long: `Show what was used, as far as it was reported until now: tokens, cost, the time of
attempts added up, how many attempts ended and how many jobs were completed.

A time is a date (2026-03-01), a time of day (2026-03-01T12:00), both local, or how long ago
it was (24h, 7d). It is rounded down to a quarter of an hour.`,
		Example: "  scheduler usage --by tenant --since 7d\n  scheduler usage --by day --by worker --since 2026-03-01 --until 2026-04-01",
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.by, "by", nil, "keep apart by `DIMENSION`: tenant, agent, worker, model or day; may be repeated")
	f.StringVar(&o.since, "since", "", "only what was used since this `TIME`")
	f.StringVar(&o.until, "until", "", "only what was used before this `TIME`")
	f.StringVar(&o.tenant, "tenant", "", "only what this tenant has used")
	f.StringVar(&o.agent, "agent", "", "only what was used for this agent")
	f.StringVar(&o.worker, "worker", "", "only what this worker has used")
	f.StringVar(&o.model, "model", "", "only what this model has used")
	var query client.UsageQuery
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (used api.Usage, err error) {
		if query, err = o.filter(time.Now()); err != nil {
			return used, usage(err)
		}
		return p.Usage(ctx, query)
	}, func(w io.Writer, used api.Usage) error { return printUsage(w, query.By, used.Accounts, used.Total) })
}

// filter reads the flags.
func (o *usageOptions) filter(now time.Time) (f client.UsageQuery, err error) {
	f = client.UsageQuery{Tenant: job.Tenant(o.tenant), Agent: job.AgentID(o.agent), Worker: job.WorkerKind(o.worker), Model: o.model, Zone: time.Local}
	var errs []error
	for _, text := range o.by {
		d := api.Dimension(text)
		if !slices.Contains(queue.Dimensions(), queue.Dimension(d)) {
			errs = append(errs, fmt.Errorf("unknown --by %q: use tenant, agent, worker, model or day", text))
		}
		if !slices.Contains(f.By, d) {
			f.By = append(f.By, d)
		}
	}
	for _, x := range []struct {
		flag, text string
		field      *time.Time
	}{{"--since", o.since, &f.Since}, {"--until", o.until, &f.Until}} {
		if x.text == "" {
			continue
		}
		if *x.field, err = pastTime(x.text, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", x.flag, err))
		}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		errs = append(errs, fmt.Errorf("--since %s is not before --until %s", o.since, o.until))
	}
	return f, errors.Join(errs...)
}

// pastTime reads a date, a time, or how long ago it is.
func pastTime(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	ago, err := spanOf(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("invalid time %q: use a date such as 2026-03-01, a time such as 2026-03-01T12:00, or how long ago it was, such as 24h or 7d", text)
	}
	return now.Add(-ago), nil
}

// spanOf reads a duration, in days too.
func spanOf(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		var n int
		if _, err := fmt.Sscanf(days+"\n", "%d\n", &n); err == nil && n >= 0 && n < 100_000 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("it is negative")
	}
	return d, err
}

// spanFlag reads the value of a flag.
func spanFlag(name, text string) (job.Duration, error) {
	d, err := spanOf(text)
	if err != nil || d == 0 && name != "wall" && name != "window" { // of a bound it is none
		return 0, usage(fmt.Errorf("invalid --%s %q: use a length of time such as 90s, 15m, 24h or 7d", name, text))
	}
	return job.Duration(d), nil
}

func printUsage(w io.Writer, by []api.Dimension, accounts []api.Account, total api.Account) error {
	cells := func(a *api.Account) (list []string) {
		for _, d := range by {
			switch d {
			case api.ByTenant:
				list = append(list, dash(string(a.Tenant)))
			case api.ByAgent:
				if !slices.Contains(by, api.ByTenant) {
					list = append(list, dash(string(a.Tenant)))
				}
				list = append(list, dash(string(a.Agent)))
			case api.ByWorker:
				name := dash(string(a.Worker))
				if a.Worker == "" {
					name = "(not started)" // jobs that have ended without a worker
				}
				list = append(list, name)
			case api.ByModel:
				list = append(list, dash(a.Model))
			case api.ByDay:
				list = append(list, a.Day)
			}
		}
		return list
	}
	head := ""
	for _, d := range by {
		if d == api.ByAgent && !slices.Contains(by, api.ByTenant) {
			head += "TENANT\t"
		}
		head += strings.ToUpper(string(d)) + "\t"
	}
	err := table(w, head+"INPUT\tCACHED\tOUTPUT\tCOST\tTIME\tATTEMPTS\tCOMPLETED", func(w io.Writer) {
		row := func(names []string, a *api.Account) {
			for _, n := range names {
				fmt.Fprint(w, n, "\t")
			}
			u := a.Usage
			fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%d\t%d\n", u.InputTokens, u.CachedTokens, u.OutputTokens, terminal.Cost(u),
				a.Wall.Std().Round(time.Second), a.Attempts, a.Completed)
		}
		if len(by) == 0 {
			row(nil, &total)
			return
		}
		for i := range accounts {
			row(cells(&accounts[i]), &accounts[i])
		}
		names := make([]string, strings.Count(head, "\t"))
		names[0] = "total"
		row(names, &total)
	})
	if u := total.Usage; err == nil && !u.CostKnown && (u.Tokens() > 0 || u.CostUSD > 0) {
		_, err = fmt.Fprintln(w, "\n> and ?: some of these tokens have no price; docs/accounting.md tells how to give them one")
	}
	return err
}

// dash is a name as it is printed: one that is empty would shift the row.
func dash(name string) string {
	if name = terminal.Clean(name); name == "" {
		return "-"
	}
	return name
}
