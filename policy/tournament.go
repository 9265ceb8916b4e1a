package policy

import (
	"math"
	"math/bits"
)

// tournament finds the tenant with the smallest used/U − weight/W, where U and
// W are the sums over all tenants in it.
//
// No key of a tenant's own has that order, since each change of U or W changes
// the order of the others. But with λ = U/W it is the order of used − weight·λ:
// each tenant is a line over λ, and sought is the lowest at the present λ. So
// this is a kinetic tournament (J. Basch, L. Guibas, J. Hershberger, Data
// Structures for Mobile Data, SODA 1997) that keeps in each node, beside the
// winner, between which λ all matches below it end as they did. A change of
// one tenant replays the matches on its way to the root. A change of λ replays
// those alone which it turns: O(log n) in the steady state, where a job moves
// λ by 1/n of what the tenants differ by; up to n when it leaps.
type tournament struct {
	lines []line  // by seat
	free  []int   // seats without a tenant
	nodes []match // 1 is the root, i has 2i and 2i+1 below it; the second half are the seats
	used  int64   // U
	total int64   // W
}

// line is a tenant in a tournament.
type line struct {
	tenant *tenant // nil: the seat is empty
	due    bool    // before all that are not
	used   int64
	weight int64  // above 0
	turn   uint64 // the lower wins where all else is equal
}

// match is valid for lo < λ < hi.
type match struct {
	lo, hi float64
	winner int32 // a seat; -1 if all are empty
}

// rounding is more than the relative error of a λ or a bound in floating point,
// taken together: three roundings of 2⁻⁵³ each. A match whose bound is nearer
// to λ is replayed, in integers.
const rounding = 1e-15

func newTournament() tournament {
	tr := tournament{}
	tr.grow(1)
	return tr
}

// add returns the seat.
func (tr *tournament) add(l line) int {
	if len(tr.free) == 0 {
		tr.grow(2 * len(tr.lines))
	}
	seat := tr.free[len(tr.free)-1]
	tr.free = tr.free[:len(tr.free)-1]
	tr.set(seat, l)
	return seat
}

func (tr *tournament) remove(seat int) {
	tr.set(seat, line{})
	tr.free = append(tr.free, seat)
}

// set changes who has the seat, or what of them.
func (tr *tournament) set(seat int, l line) {
	old := tr.lines[seat]
	if l == old {
		return
	}
	tr.used += l.used - old.used
	tr.total += l.weight - old.weight
	tr.lines[seat] = l
	i := len(tr.lines) + seat
	tr.nodes[i] = alone(seat, l)
	for i /= 2; i > 0; i /= 2 {
		was, is := tr.nodes[i], tr.play(i)
		tr.nodes[i] = is
		if was == is && int(is.winner) != seat {
			return // nothing of this is seen further up
		}
	}
}

func (tr *tournament) first() *tenant {
	if tr.total == 0 {
		return nil
	}
	tr.replay(1, float64(tr.lead())/float64(tr.total))
	return tr.lines[tr.nodes[1].winner].tenant
}

// lead is U, above 0: where no tenant has used anything the largest weight wins.
func (tr *tournament) lead() int64 { return max(tr.used, 1) }

// replay makes the node valid at λ.
func (tr *tournament) replay(i int, λ float64) {
	if n := &tr.nodes[i]; n.lo < λ && λ < n.hi {
		return
	}
	if i >= len(tr.lines) {
		return
	}
	tr.replay(2*i, λ)
	tr.replay(2*i+1, λ)
	tr.nodes[i] = tr.play(i)
}

// play decides the match between the winners below node i at the present λ.
// A winner from below that is not valid there makes this node invalid, too.
func (tr *tournament) play(i int) match {
	a, b := tr.nodes[2*i], tr.nodes[2*i+1]
	m := match{lo: max(a.lo, b.lo), hi: min(a.hi, b.hi), winner: a.winner}
	if a.winner < 0 || b.winner < 0 {
		m.winner = max(a.winner, b.winner)
		return m
	}
	won, lost := &tr.lines[a.winner], &tr.lines[b.winner]
	if tr.before(lost, won) {
		won, lost, m.winner = lost, won, b.winner
	}
	if won.due != lost.due || won.weight == lost.weight {
		return m // whatever λ is
	}
	cross := float64(won.used-lost.used) / float64(won.weight-lost.weight)
	if won.weight > lost.weight {
		m.lo = max(m.lo, cross+math.Abs(cross)*rounding)
	} else {
		m.hi = min(m.hi, cross-math.Abs(cross)*rounding)
	}
	return m
}

// before says whether a comes before b, exactly: a.used − a.weight·U/W is the
// smaller one.
func (tr *tournament) before(a, b *line) bool {
	if a.due != b.due {
		return a.due
	}
	hi1, lo1 := product(a.used-b.used, tr.total)
	hi2, lo2 := product(a.weight-b.weight, tr.lead())
	switch {
	case hi1 != hi2:
		return hi1 < hi2
	case lo1 != lo2:
		return lo1 < lo2
	}
	return a.turn < b.turn
}

// product returns a·b in 128 bits, for b >= 0.
func product(a, b int64) (hi int64, lo uint64) {
	h, lo := bits.Mul64(uint64(a), uint64(b))
	if a < 0 {
		h -= uint64(b)
	}
	return int64(h), lo
}

// grow makes room for n tenants, a power of two.
func (tr *tournament) grow(n int) {
	for seat := n - 1; seat >= len(tr.lines); seat-- {
		tr.free = append(tr.free, seat)
	}
	lines := make([]line, n)
	copy(lines, tr.lines)
	tr.lines = lines
	tr.nodes = make([]match, 2*n)
	for i := range lines {
		tr.nodes[n+i] = alone(i, lines[i])
	}
	for i := n - 1; i > 0; i-- {
		tr.nodes[i] = tr.play(i)
	}
}

// alone is who wins a seat.
func alone(seat int, l line) match {
	m := match{lo: math.Inf(-1), hi: math.Inf(1), winner: int32(seat)}
	if l.tenant == nil {
		m.winner = -1
	}
	return m
}
