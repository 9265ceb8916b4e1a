package policy

import (
	"cmp"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// Best returns the index of the candidate to run a job on; -1 of none. rep tells
// a candidate's reputation, in [0, 1], and of how many evaluations it is. draw is
// a number of a uniform distribution over [0, 1); a caller that keeps it gets the same
// choice again from the same reputations.
//
// With a draw below explore it is the candidate of the fewest evaluations, so
// that a newcomer gets its chance, and a reputation that is old is looked at
// again. Else it is the one of the highest reputation among those that have any;
// if none has, the first. Of equals the first in the list is taken.
//
// This is ε-greedy choice (R. Sutton, A. Barto, Reinforcement Learning, section
// 2.2), but for exploring what is known least instead of anything.
func Best(candidates []job.Choice, rep func(job.Choice) (r float64, n int), explore, draw float64) int {
	best, least := -1, -1
	var bestR float64
	var leastN int
	for i, c := range candidates {
		r, n := rep(c)
		if least < 0 || n < leastN {
			least, leastN = i, n
		}
		if n > 0 && (best < 0 || r > bestR) {
			best, bestR = i, r
		}
	}
	switch {
	case best < 0 && len(candidates) > 0:
		return 0
	case draw < explore:
		return least
	}
	return best
}

// Rank returns the indices of the candidates in the order in which they are to
// be tried: Best's first, then the others that have a reputation, the highest
// first, then those that have none, each among equals as in the list.
func Rank(candidates []job.Choice, rep func(job.Choice) (r float64, n int), explore, draw float64) []int {
	first := Best(candidates, rep, explore, draw)
	order := make([]int, len(candidates))
	for i := range order {
		order[i] = i
	}
	// A reputation is from 0 to 1, so that none else is as high or as low.
	standing := func(i int) float64 {
		switch r, n := rep(candidates[i]); {
		case i == first:
			return 2
		case n == 0:
			return -1
		default:
			return r
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(standing(b), standing(a))
	})
	return order
}
