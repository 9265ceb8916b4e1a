package permit

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// budget checks the job's own limits and returns the grant of its next attempt. Called
// with g.mu held. With used = max(the gate's record, the request's claim), figure by figure,
// an attempt may run if
//
//	used attempts < MaxAttempts
//	used time     < RetryBudget.Time
//	used cost     < cost limit, the lower of MaxCostUSD and RetryBudget.CostUSD
//	used tokens   < MaxTokens
//	              both with what is ceded
//	now           < the job's deadline
//
// for each limit that is set, and is granted
//
//	Deadline = min(now + Timeout, now + RetryBudget.Time - used time, the job's deadline)
//	CostUSD  = cost limit - used cost
//	Tokens   = MaxTokens - used tokens
//
// A Timeout that is not set is job.DefaultTimeout. Lost attempts are not counted, but
// their time, cost and tokens are.
func (g *Gate) budget(now time.Time, r Request) (Grant, error) {
	own := g.record.of(r.Job)
	spent := stricter(own.spent, r.Spent)
	wall := max(own.wall, r.Time)
	counted := max(len(own.begun), r.Counted)
	limits := r.Limits

	if limits.MaxAttempts > 0 && counted >= limits.MaxAttempts {
		return Grant{}, exceeded("%s", job.UsedUp(limits.MaxAttempts))
	}
	if t := limits.RetryBudget.Time.Std(); t > 0 && wall >= t {
		return Grant{}, exceeded("the retry budget of %s is spent: attempts took %s", t, wall.Round(time.Millisecond))
	}
	costLimit, costName := lowest(limits.MaxCostUSD, "max_cost_usd", limits.RetryBudget.CostUSD, "retry_budget.cost_usd")
	if costLimit > 0 && spent.CostUSD+r.Ceded.CostUSD >= costLimit {
		return Grant{}, exceeded("%s of %.4f is spent: attempts cost %.4f US dollars%s", costName, costLimit, spent.CostUSD, others("%.4f", r.Ceded.CostUSD))
	}
	if limits.MaxTokens > 0 && spent.Tokens()+r.Ceded.Tokens >= limits.MaxTokens {
		return Grant{}, exceeded("max_tokens of %d is spent: attempts used %d%s", limits.MaxTokens, spent.Tokens(), others("%d", r.Ceded.Tokens))
	}
	if r.Deadline != nil && !now.Before(*r.Deadline) {
		return Grant{}, exceeded("the deadline %s has passed", r.Deadline.Format(time.RFC3339))
	}

	timeout := limits.Timeout
	if timeout <= 0 {
		timeout = job.DefaultTimeout
	}
	grant := Grant{Deadline: now.Add(timeout.Std()), Why: fmt.Sprintf("the job's timeout of %s", timeout)}
	if t := limits.RetryBudget.Time.Std(); t > 0 && now.Add(t-wall).Before(grant.Deadline) {
		grant.Deadline, grant.Why = now.Add(t-wall), fmt.Sprintf("the job's retry budget of %s", t)
	}
	if r.Deadline != nil && r.Deadline.Before(grant.Deadline) {
		// Adding to now keeps the monotonic clock: a later jump of the wall clock
		// neither ends the run early nor lets it go on.
		grant.Deadline, grant.Why = now.Add(r.Deadline.Sub(now)), fmt.Sprintf("the job's deadline %s", r.Deadline.Format(time.RFC3339))
	}
	if costLimit > 0 {
		grant.CostUSD = costLimit - spent.CostUSD
	}
	if limits.MaxTokens > 0 {
		grant.Tokens = limits.MaxTokens - spent.Tokens()
	}
	return grant, nil
}

// others says what is ceded, if that is something.
func others[T int64 | float64](format string, ceded T) string {
	if ceded == 0 {
		return ""
	}
	return fmt.Sprintf(", and "+format+" are ceded to jobs of the agent's", ceded)
}

// lowest returns the lower of two limits with its name. Zero means no limit.
func lowest(a float64, nameA string, b float64, nameB string) (float64, string) {
	if a == 0 || b > 0 && b < a {
		return b, nameB
	}
	return a, nameA
}

// stricter returns a usage with the higher tokens and the higher cost of a and b.
func stricter(a, b job.Usage) job.Usage {
	u := a
	if b.Tokens() > a.Tokens() {
		u = b
	}
	u.CostUSD = max(a.CostUSD, b.CostUSD)
	return u
}
