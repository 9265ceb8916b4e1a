package oversight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Facts are what the job and the outcome of its attempt do not tell.
type Facts struct {
	// Denied are tool calls that the worker was not allowed to make, in the words of
	// its events, e.g. "Bash(git push)".
	Denied []string
	// Last is set if no attempt follows the one that failed: they are used up, or
	// its failure does not heal.
	Last bool
	// Rejected is set if a person has rejected an earlier attempt.
	Rejected bool
}

// Ask reports whether a person must look at what an attempt made before anything
// is built on it, and why. draw is the number in [0, 1) of the attempt (see Draw);
// only a spot check looks at it.
//
// What autonomous_escalation asks, spot_check asks too, and what that asks,
// supervised does. Without oversight nothing is asked. Only work that is there to
// be looked at is asked about: that of an attempt that succeeded, and of the last
// one if it failed its check, or was denied something.
func Ask(spec *job.Spec, o *job.Outcome, f Facts, draw float64) (bool, string) {
	ov := spec.Flow.Oversight
	if ov == nil || !reviewable(o, f) {
		return false, ""
	}
	if why := agentAsks(ov, o, f); why != "" {
		return true, why
	}
	switch ov.Mode {
	case job.Supervised:
		return true, "supervised: a person looks at everything that the job makes"
	case job.SpotCheck:
		if p := probability(ov); draw < p {
			return true, fmt.Sprintf("a spot check: drew %s, below the probability of %g", drawn(draw, p), p)
		}
	}
	return false, ""
}

// reviewable reports whether an attempt left work that may be accepted.
func reviewable(o *job.Outcome, f Facts) bool {
	switch o.State {
	case job.RunCompleted:
		return true
	case job.RunFailed:
		return f.Last && (o.Class == job.VerifyFailed || len(f.Denied) > 0)
	}
	return false
}

// agentAsks returns why the agent asks, or has to; "" if it does not.
func agentAsks(ov *job.Oversight, o *job.Outcome, f Facts) string {
	var whys []string
	if !o.Succeeded() && o.Class == job.VerifyFailed {
		whys = append(whys, "its check keeps failing and no attempt is left: "+brief(o.Message))
	}
	if n := len(f.Denied); n > 0 {
		whys = append(whys, fmt.Sprintf("%s not allowed: %s", count(n, "tool call was", "tool calls were"), brief(strings.Join(distinct(f.Denied), ", "))))
	}
	if f.Rejected {
		whys = append(whys, "it was rejected before and has been done again")
	}
	return strings.Join(append(whys, answerAsks(ov, o.Answer)...), "; ")
}

// drawn writes a draw below p with as many digits as it takes to look below p.
func drawn(draw, p float64) string {
	for digits := 3; ; digits++ {
		text := strconv.FormatFloat(draw, 'f', digits, 64)
		if v, err := strconv.ParseFloat(text, 64); err != nil || v < p || v == draw {
			return text
		}
	}
}

func probability(ov *job.Oversight) float64 {
	if ov.Probability == nil {
		return job.DefaultSpotCheck
	}
	return *ov.Probability
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func distinct(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

// maxBrief bounds, in bytes, what a reason quotes: the whole stands in the outcome.
const maxBrief = 300

// brief returns the first line of a text, and with one that only announces what
// comes ("…:") the next one, too.
func brief(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if strings.HasSuffix(strings.TrimSpace(line), ":") {
		next, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		line = strings.TrimSpace(strings.TrimSpace(line) + " " + next)
	}
	cut, _ := job.Cut(line, maxBrief)
	return strings.ReplaceAll(cut, "\n", " ")
}
