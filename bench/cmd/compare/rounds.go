package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// side is one round of one side; it returns a rate a second, or seconds.
type side func(context.Context) (float64, error)

// sample is what the rounds of one side gave.
type sample []float64

// median of the rounds; of an even number the mean of the middle two.
func (s sample) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile is the least value that at least the share q of all do not pass.
func (s sample) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(int(math.Ceil(q*float64(len(s))))-1, 0)]
}

// spread is the distance of the extremes in parts of the median.
func (s sample) spread() float64 {
	return (slices.Max(s) - slices.Min(s)) / s.median()
}

// turns lets the sides take turns: in each round every side once, the last of
// one round first in the next.
func turns(ctx context.Context, rounds int, sides ...side) ([]sample, error) {
	samples := make([]sample, len(sides))
	order := make([]int, len(sides))
	for i := range order {
		order[i] = i
	}
	for range rounds {
		for _, i := range order {
			runtime.GC() // nobody pays for the garbage of the side before
			value, err := sides[i](ctx)
			if err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], value)
		}
		slices.Reverse(order)
	}
	return samples, nil
}

// rate is how often a second something happened.
func rate(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

// profiled writes a CPU profile of each round; `go tool pprof` adds them up.
func (b *bench) profiled(name string, s side) side {
	if b.profile == "" {
		return s
	}
	round := 0
	return func(ctx context.Context) (float64, error) {
		round++
		f, err := os.Create(filepath.Join(b.profile, fmt.Sprintf("%s.%d.pprof", name, round)))
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return 0, err
		}
		defer pprof.StopCPUProfile()
		return s(ctx)
	}
}
