package oversight_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/oversight"
)

// The numbers are of another implementation (Python): a recorded draw must come
// out again, whatever becomes of the code.
func TestDrawIsTheSameForEver(t *testing.T) {
	const id = job.ID("01a1fcce-6b90-7022-94af-83e4d513c5ef")
	for _, c := range []struct {
		attempt int
		seed    uint64
		want    float64
	}{{1, 0, 0.14678060079926958}, {2, 0, 0.9541301277805568}, {1, 42, 0.7397529042975497}} {
		if got := oversight.Draw(id, c.attempt, c.seed); got != c.want {
			t.Errorf("attempt %d, seed %d: got %v, want %v", c.attempt, c.seed, got, c.want)
		}
	}
}

func TestDrawsAreUniform(t *testing.T) {
	const n, cells = 20_000, 20
	var counts [cells]int
	below := 0
	for i := range n {
		d := oversight.Draw(job.ID(fmt.Sprintf("job-%d", i/4)), i%4+1, 7)
		if d < 0 || d >= 1 {
			t.Fatalf("draw %d is %v, want it in [0, 1)", i, d)
		}
		counts[int(d*cells)]++
		if d < job.DefaultSpotCheck {
			below++
		}
	}
	// Chi-squared with 19 degrees of freedom exceeds 43.8 once in a thousand; the
	// draws are fixed, so that this passes always or never.
	chi := 0.0
	for _, c := range counts {
		chi += math.Pow(float64(c)-n/cells, 2) / (n / cells)
	}
	if chi > 43.8 {
		t.Errorf("chi-squared over %d cells is %.1f, want at most 43.8", cells, chi)
	}
	if share := float64(below) / n; math.Abs(share-job.DefaultSpotCheck) > 0.01 {
		t.Errorf("%.3f of the draws are spot checks, want about %g", share, job.DefaultSpotCheck)
	}
}

func TestARejectionIsRetriedWithTheFeedbackUntilMaxRetries(t *testing.T) {
	for _, c := range []struct {
		rejections, max int
		comment         string
		want            oversight.Follow
	}{
		{0, 2, " use the old API\n", oversight.Follow{Retry: true, Feedback: "use the old API"}},
		{1, 2, "still not", oversight.Follow{Retry: true, Feedback: "still not"}},
		{2, 2, "still not\nreally", oversight.Follow{DeadLetter: "HUMAN_REJECTED: still not; rejected 3 times, max_retries is 2"}},
		{0, 0, "", oversight.Follow{DeadLetter: "HUMAN_REJECTED: without a reason; rejected 1 time, max_retries is 0"}},
		{0, 1, "", oversight.Follow{Retry: true, Feedback: "a person has rejected the work and gave no reason"}},
	} {
		if got := oversight.Answer(c.rejections, c.max, c.comment); got != c.want {
			t.Errorf("rejected %d of %d: got %+v, want %+v", c.rejections, c.max, got, c.want)
		}
	}
}

func TestAQuestionWithoutATimeoutWaitsForEver(t *testing.T) {
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if oversight.Until(asked, 0) != nil {
		t.Error("without a timeout there is a time at which it is up")
	}
	if until := oversight.Until(asked, time.Hour); until == nil || !until.Equal(asked.Add(time.Hour)) {
		t.Errorf("got %v, want an hour after %v", until, asked)
	}
}
