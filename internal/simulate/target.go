package simulate

import "math"

// targets returns the part of 1 that each tenant would have had from an ideal
// server: one that at every moment divides what the slots did at that moment by
// weight among the tenants that have work, in parts as small as need be, and
// gives what one has no use for to the others (generalised processor sharing:
// A. Parekh, R. Gallager, A Generalized Processor Sharing Approach to Flow
// Control in Integrated Services Networks, IEEE/ACM Transactions on Networking
// 1(3), 1993). So nobody's target exceeds what its jobs could use, in all and
// with as many slots at once as it may have, and who was not there does not
// count.
func (s *series) targets(ranks [][]float64) []float64 {
	n := len(s.used)
	had, backlog, want := make([]float64, n), make([]float64, n), make([]float64, n)
	possible := make([]float64, n) // since it has had work, beyond what it was given
	most := s.most()
	capacity := 0.0
	for k := range steps {
		for i := range n {
			capacity += s.measured.of(s.used[i][k+1].plus(s.used[i][k].times(-1)))
			backlog[i] += s.measured.of(s.arrived[i][k])
			want[i] = backlog[i]
			if s.endless[i][k] {
				want[i] = math.Inf(1)
			}
			if want[i] == 0 {
				possible[i] = 0
			}
			possible[i] += most[i]
			want[i] = min(want[i], possible[i])
		}
		for i, given := range divide(capacity, ranks, want) {
			had[i] += given
			backlog[i] = max(backlog[i]-given, 0)
			possible[i] -= given
			capacity -= given
		}
		// What is left of the capacity was used for work that the ideal server had
		// done before: it has that much in hand.
		capacity = max(capacity, 0)
	}
	return normalised(had)
}

// most returns how much each tenant could have within a step, if its jobs ran in
// all of the slots that it may have and were like those that did run; without
// such a job there is no telling.
func (s *series) most() []float64 {
	list := make([]float64, len(s.used))
	for i := range list {
		used := s.used[i][steps]
		if used[0] == 0 {
			list[i] = math.Inf(1)
			continue
		}
		step := s.length.Seconds() / steps
		list[i] = s.measured.of(used.times(float64(s.slots[i]) * step / used[0]))
	}
	return list
}

// divide shares out an amount by weight so that nobody gets more than it wants
// (max-min fairness), rank by rank: see aim.
func divide(amount float64, ranks [][]float64, want []float64) []float64 {
	given := make([]float64, len(want))
	for _, weights := range ranks {
		amount -= fill(amount, weights, want, given)
	}
	return given
}

// fill adds to given by weight, and returns how much in all. Who is content
// drops out, which leaves more for the others; each round at least one does.
func fill(amount float64, weights, want, given []float64) float64 {
	left := amount
	content := make([]bool, len(want))
	for left > 0 {
		sum := 0.0
		for i, w := range weights {
			if !content[i] {
				sum += w
			}
		}
		if sum == 0 {
			break
		}
		share, all := left/sum, true
		for i, w := range weights {
			if w > 0 && !content[i] && want[i] <= share*w {
				given[i] += want[i]
				left -= want[i]
				content[i], all = true, false
			}
		}
		if !all {
			continue
		}
		for i, w := range weights {
			if !content[i] {
				given[i] += share * w
			}
		}
		left = 0
	}
	return amount - max(left, 0)
}
