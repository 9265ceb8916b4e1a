package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
)

func tenantsCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tenants", Short: "List tenants: what they have waiting and running, their shares and costs", Args: cobra.NoArgs,
		Long: `List the tenants: how many of their jobs wait and run, the share of the work that each has
had against the one that it is to have by the policy, what it has used today (UTC) and what
it may use. Shares are known to a running scheduler only.`,
		Example: "  scheduler tenants\n  scheduler tenants --json",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.Tenants, error) {
		list, err := p.Tenants(ctx)
		return api.Tenants{Tenants: list}, err
	}, func(w io.Writer, v api.Tenants) error {
		if len(v.Tenants) == 0 {
			fmt.Fprintln(con.stderr, "no tenant has jobs, or has used anything today")
			return nil
		}
		return printTenants(w, v.Tenants, time.Now())
	})
}

func printTenants(w io.Writer, list []api.Tenant, now time.Time) error {
	return table(w, "TENANT\tQUEUED\tRUNS\tOLDEST\tSHARE\tTARGET\tTODAY\tTOKENS\tMAY USE\tNOTE", func(w io.Writer) {
		for i := range list {
			t := &list[i]
			share, target, note := "-", "-", ""
			if s := t.Share; s != nil {
				share, note = fmt.Sprintf("%.1f%%", 100*s.Actual), s.Held
				if s.Target > 0 {
					target = fmt.Sprintf("%.1f%%", 100*s.Target)
				}
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", dash(string(t.Tenant)), t.Queued, t.Running, ago(t.Oldest, now), share, target,
				terminal.Cost(t.Today.Usage), t.Today.Usage.Tokens(), mayUse(t.Grant, t.Balance), terminal.Clean(note))
		}
	})
}

// mayUse is a grant and a balance in a few words.
func mayUse(g *api.Grant, b *api.Balance) string {
	var parts []string
	if b != nil {
		parts = append(parts, fmt.Sprintf("%d credits", b.Left))
	}
	if g == nil {
		return dash(strings.Join(parts, ", "))
	}
	if g.Dead {
		parts = append(parts, "nothing more")
	}
	if g.CostUSD > 0 {
		parts = append(parts, fmt.Sprintf("$%.2f", g.CostUSD))
	}
	if g.Tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", g.Tokens))
	}
	if g.Wall > 0 {
		parts = append(parts, g.Wall.String())
	}
	text := strings.Join(parts, ", ")
	if g.Window > 0 && text != "" {
		text += " in " + g.Window.String()
	}
	return dash(text)
}
