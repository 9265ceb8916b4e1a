package policy

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestTournament plays a large one against a look at all lines, with sums that
// creep, leap and come back, and numbers up to what an int64 holds the sum of.
func TestTournament(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		tr, seats, n, unit := newTournament(), []int{}, 1+random.IntN(300), int64(1)<<(seed%6*7)
		draw := func() line {
			return line{tenant: newTenant(job.Tenant(fmt.Sprint(random.Int()))), due: random.IntN(40) == 0,
				used: random.Int64N(1000) * unit, weight: 1 + random.Int64N(1+int64(n)*unit/2), turn: random.Uint64()}
		}
		for range 5000 {
			switch k := random.IntN(20); {
			case len(seats) < n && k < 4 || len(seats) == 0:
				seats = append(seats, tr.add(draw()))
			case k == 4:
				i := random.IntN(len(seats))
				tr.remove(seats[i])
				seats = append(seats[:i], seats[i+1:]...)
			case k == 5: // a leap
				l := tr.lines[seats[random.IntN(len(seats))]]
				l.used = random.Int64N(1000) * unit * int64(len(seats))
				tr.set(seats[random.IntN(len(seats))], line{l.tenant, l.due, l.used, l.weight, random.Uint64()})
			default: // what is usual: the first one has used some more
				seat := int(tr.nodes[1].winner)
				l := tr.lines[seat]
				l.used, l.turn = l.used+random.Int64N(50)*unit, random.Uint64()
				tr.set(seat, l)
			}
			if random.IntN(3) == 0 {
				if got, want := tr.first(), lowest(&tr, seats); got != want {
					t.Fatalf("seed %d: first is %v, want %v", seed, got, want)
				}
			}
		}
	}
}

// lowest looks at all lines.
func lowest(tr *tournament, seats []int) *tenant {
	var used, total int64
	for _, s := range seats {
		used += tr.lines[s].used
		total += tr.lines[s].weight
	}
	var best *line
	var least *big.Rat
	for _, s := range seats {
		l := &tr.lines[s]
		key := big.NewRat(l.weight, total)
		key.Neg(key)
		if used > 0 {
			key.Add(key, big.NewRat(l.used, used))
		}
		if best == nil || l.due && !best.due || l.due == best.due && (key.Cmp(least) < 0 || key.Cmp(least) == 0 && l.turn < best.turn) {
			best, least = l, key
		}
	}
	if best == nil {
		return nil
	}
	return best.tenant
}

// TestTournamentIsLogarithmic counts the matches that a pick replays, since a
// clock would measure the machine: with each weight another, and a share that
// is kept, which is where the most lines meet near the present λ.
func TestTournamentIsLogarithmic(t *testing.T) {
	for _, n := range []int{100, 1000, 10_000} {
		d := newDrive(t, NameDeficit, n)
		tr := &d.policy.(*book).order.(*deficit).tree
		const picks = 5000
		visited := 0
		for range picks {
			visited += stale(tr, 1, float64(tr.lead())/float64(tr.total))
			d.dispatch(d.policy.Next(d.now))
		}
		per := float64(visited) / picks
		t.Logf("%d tenants: %.1f nodes a pick", n, per)
		if most := 8 * math.Log2(float64(n)); per > most {
			t.Errorf("%d tenants: a pick visits %.1f nodes, want at most 8·log₂ n = %.0f", n, per, most)
		}
	}
}

// stale counts the nodes that a replay at λ would visit.
func stale(tr *tournament, i int, λ float64) int {
	if n := tr.nodes[i]; n.lo < λ && λ < n.hi || i >= len(tr.lines) {
		return 1
	}
	return 1 + stale(tr, 2*i, λ) + stale(tr, 2*i+1, λ)
}
