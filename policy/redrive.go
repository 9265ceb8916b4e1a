package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Letter is what is known of a dead letter that was neither requeued nor dropped.
type Letter struct {
	ID     job.ID
	Tenant job.Tenant
	Worker job.WorkerKind // that the job ran on last
	Class  job.ErrorClass
	Since  time.Time // when it was given up
	// Requeues is how many dead letters came before it, each requeued as the next.
	Requeues int
}

// RedriveRule says which dead letters are requeued automatically.
type RedriveRule struct {
	Classes []job.ErrorClass // one of these; none matches nothing
	Tenant  job.Tenant       // "" any
	Worker  job.WorkerKind   // "" any
	After   time.Duration    // since it was given up
	Max     int              // how often a job is requeued in all, by a rule or a person; 0 never
	Rate    RedriveRate      // how many jobs by this rule; zero: any number
}

// String names the rule by all that it says.
func (r RedriveRule) String() string {
	return fmt.Sprintf("class=%v tenant=%s worker=%s after=%s max=%d rate=%s", r.Classes, r.Tenant, r.Worker, r.After, r.Max, r.Rate)
}

func (r *RedriveRule) matches(l *Letter) bool {
	return slices.Contains(r.Classes, l.Class) && (r.Tenant == "" || r.Tenant == l.Tenant) && (r.Worker == "" || r.Worker == l.Worker)
}

// Redrives is when each rule (RedriveRule.String) has requeued letters lately,
// the earliest first: what its rate counts. nil is a fresh start.
type Redrives map[string][]time.Time

// Redrive returns the letters to requeue now, those given up first first, and
// what becomes of lately if they all are; lately itself stays as it was. The
// first rule that matches a letter decides about it, whatever the others say.
func Redrive(rules []RedriveRule, lately Redrives, letters []Letter, now time.Time) ([]job.ID, Redrives) {
	next := Redrives{}
	for i := range rules {
		if name := rules[i].String(); rules[i].Rate.Count > 0 {
			next[name] = slices.DeleteFunc(slices.Clone(lately[name]), func(t time.Time) bool { return now.Sub(t) >= rules[i].Rate.Per })
		}
	}
	letters = slices.Clone(letters)
	slices.SortFunc(letters, func(a, b Letter) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	var ids []job.ID
	for i := range letters {
		l := &letters[i]
		n := slices.IndexFunc(rules, func(r RedriveRule) bool { return r.matches(l) })
		if n < 0 || now.Sub(l.Since) < rules[n].After || l.Requeues >= rules[n].Max {
			continue
		}
		if rate := rules[n].Rate; rate.Count > 0 {
			name := rules[n].String()
			if len(next[name]) >= rate.Count {
				continue
			}
			next[name] = append(next[name], now)
		}
		ids = append(ids, l.ID)
	}
	maps.DeleteFunc(next, func(_ string, at []time.Time) bool { return len(at) == 0 })
	return ids, next
}

// RedriveRate is so many within any span of a length, e.g. "10/h". Its zero
// value is no bound.
type RedriveRate struct {
	Count int
	Per   time.Duration
}

// String writes the rate as UnmarshalText reads it; the zero value is "".
func (r RedriveRate) String() string {
	if r.Count == 0 {
		return ""
	}
	for _, unit := range rateUnits {
		if r.Per == unit.of {
			return fmt.Sprintf("%d/%s", r.Count, unit.name)
		}
	}
	return fmt.Sprintf("%d/%s", r.Count, r.Per)
}

// MarshalText is String.
func (r RedriveRate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a rate such as "10/h", "1/m" or "100/24h".
func (r *RedriveRate) UnmarshalText(text []byte) error {
	bad := fmt.Errorf("%q is not a rate, want a number of jobs and a time such as 10/h, 1/m or 100/24h", text)
	count, per, ok := strings.Cut(string(text), "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil || n < 1 {
		return bad
	}
	per = strings.TrimSpace(per)
	for _, unit := range rateUnits {
		if per == unit.name {
			*r = RedriveRate{n, unit.of}
			return nil
		}
	}
	d, err := time.ParseDuration(per)
	if err != nil || d <= 0 {
		return bad
	}
	*r = RedriveRate{n, d}
	return nil
}

var rateUnits = []struct {
	name string
	of   time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}
