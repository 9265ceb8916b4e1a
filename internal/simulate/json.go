package simulate

import (
	"math"

	"github.com/agentsched/agentsched/job"
)

// samples is how many shares over time a result has as JSON.
const samples = 120

// jsonResult is a Result as a program reads it. Shares are parts of 1.
type jsonResult struct {
	Policy     string       `json:"policy"`
	Measure    Measure      `json:"measure"`
	Duration   job.Duration `json:"duration"`
	Done       int          `json:"done"`
	PerHour    float64      `json:"per_hour"`
	Busy       float64      `json:"busy"`
	Jain       float64      `json:"jain"`
	OwnTargets bool         `json:"own_targets"`
	Tenants    []jsonTenant `json:"tenants"`
	// Step is the time from one of a tenant's shares over time to the next, the
	// first being at Step; each is of the Window before it.
	Step   job.Duration `json:"step"`
	Window job.Duration `json:"window"`
}

type jsonTenant struct {
	Tenant          job.Tenant   `json:"tenant"`
	Target          float64      `json:"target"`
	Actual          float64      `json:"actual"`
	Error           float64      `json:"error"`
	Arrived         int          `json:"arrived"`
	Began           int          `json:"began"`
	Done            int          `json:"done"`
	Waiting         int          `json:"waiting"`
	MeanWait        job.Duration `json:"mean_wait"`
	P95Wait         job.Duration `json:"p95_wait"`
	LongestWait     job.Duration `json:"longest_wait"`
	LongestUnserved job.Duration `json:"longest_unserved"`
	Starved         bool         `json:"starved"`
	Shares          []float64    `json:"shares"`
}

// JSON returns the results of one workload as a value to encode.
func JSON(w *Workload, results []*Result) any {
	all := struct {
		Workload string       `json:"workload"`
		Slots    int          `json:"slots"`
		Seed     int64        `json:"seed"`
		Results  []jsonResult `json:"results"`
	}{w.Name, w.Slots, w.Seed, []jsonResult{}}
	for _, r := range results {
		all.Results = append(all.Results, r.json())
	}
	return all
}

func (r *Result) json() jsonResult {
	j := jsonResult{
		Policy: r.Policy, Measure: r.Measure, Duration: job.Duration(r.Duration), Done: r.Done, PerHour: round(r.PerHour), Busy: round(r.Busy),
		Jain: round(r.Jain), OwnTargets: r.OwnTargets, Step: job.Duration(r.series.length / samples), Window: job.Duration(r.series.window),
	}
	shares := r.series.over(samples)
	for i := range r.Tenants {
		t := &r.Tenants[i]
		for k := range shares[i] {
			shares[i][k] = round(shares[i][k])
		}
		j.Tenants = append(j.Tenants, jsonTenant{
			Tenant: t.Tenant, Target: round(t.Target), Actual: round(t.Actual), Error: round(t.Error()),
			Arrived: t.Arrived, Began: t.Began, Done: t.Done, Waiting: t.Waiting(),
			MeanWait: job.Duration(t.MeanWait), P95Wait: job.Duration(t.P95Wait), LongestWait: job.Duration(t.LongestWait),
			LongestUnserved: job.Duration(t.LongestUnserved), Starved: t.Starved, Shares: shares[i],
		})
	}
	return j
}

// round keeps what a simulation can mean: six decimals.
func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }
