package terminal

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// timeText is spanText with tenths of a second below ten.
func timeText(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", max(d, 0).Truncate(100*time.Millisecond).Seconds())
	}
	return spanText(d)
}

// spanText is a duration in at most 6 cells up to 999 days.
func spanText(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 100*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}

// Count is a number in at most 6 cells up to 999 billion, e.g. 12.3k.
func Count(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G"} {
		if v < 999.95 || unit == "" && n < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "" {
		return fmt.Sprintf("%d", n)
	}
	return fmt.Sprintf("%.1f%s", v, unit)
}

// tokensText is "-" where a worker counts no tokens.
func tokensText(u job.Usage) string {
	if u.Tokens() == 0 {
		return "-"
	}
	return Count(u.Tokens())
}

// Cost is what a usage cost in US dollars, e.g. "$0.0123": "?" if unknown, ">$…" if it is known of
// a part only, "-" if nothing was used that costs.
func Cost(u job.Usage) string {
	switch {
	case u.CostKnown:
		return fmt.Sprintf("$%.4f", u.CostUSD)
	case u.CostUSD > 0:
		return fmt.Sprintf(">$%.4f", u.CostUSD)
	case u.Tokens() > 0:
		return "?"
	}
	return "-"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
