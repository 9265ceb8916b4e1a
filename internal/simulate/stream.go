package simulate

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/job"
)

// record is one job's life. Times are from the simulation's start.
type record struct {
	tenant, stream int32
	priority       int32
	arrived        time.Duration
	began          time.Duration // -1: it has not
	runs           time.Duration // how long it runs once it has begun
	tokens, cost   float64       // what it uses
	declared       float64       // what it says that it will use, as a factor of that
}

// never is later than every simulation.
const never = time.Duration(math.MaxInt64)

// stream is one arrival of a tenant at work. All of its chance is its own, and
// drawn in the order of its jobs, so that its n-th job is the same whatever the
// policy does and whoever else is there.
type stream struct {
	arrival
	tenant int32
	of     *tenant
	random *rand.Rand
	next   time.Duration // when the next job or burst arrives; never: none does by itself
}

func newStream(seed int64, tenant int32, of *tenant, n int) *stream {
	h := fnv.New64a()
	h.Write([]byte(string(of.Name) + "/" + strconv.Itoa(n)))
	s := &stream{arrival: of.Arrivals[n], tenant: tenant, of: of, random: rand.New(rand.NewPCG(uint64(seed), h.Sum64()))}
	s.next = s.From.Std()
	if s.Rate > 0 {
		s.next += s.gap()
	}
	s.bound()
	return s
}

// take returns how many jobs arrive at s.next, and moves on to the next time.
func (s *stream) take() int {
	switch {
	case s.Rate > 0:
		s.next += s.gap()
		s.bound()
		return 1
	case s.Burst > 0 && s.Every > 0:
		s.next += s.Every.Std()
		s.bound()
		return s.Burst
	default:
		s.next = never
		return s.Burst + s.Waiting
	}
}

// bound ends the arrivals where the file says so.
func (s *stream) bound() {
	if s.Until > 0 && s.next >= s.Until.Std() {
		s.next = never
	}
}

// gap is the time to the next arrival of a Poisson process: exponential.
func (s *stream) gap() time.Duration {
	hours := s.random.ExpFloat64() / s.Rate
	return time.Duration(min(hours*float64(time.Hour), float64(maxDuration))) + 1 // no two at one moment
}

// refills reports whether a job that begins at now is replaced by another.
func (s *stream) refills(now time.Duration) bool {
	return s.Waiting > 0 && s.open(job.Duration(now))
}

// draw returns the next job.
func (s *stream) draw(now time.Duration, id int32) record {
	r := record{tenant: s.tenant, stream: id, arrived: now, began: -1}
	r.runs = s.of.Size.RunTime.draw(s.random)
	r.tokens = math.Round(s.of.Size.Tokens.draw(s.random))
	r.cost = s.of.Size.CostUSD.draw(s.random)
	r.declared = s.of.Declared.draw(s.random)
	r.priority = s.priority()
	return r
}

func (s *stream) priority() int32 {
	levels := s.of.priorities
	switch len(levels) {
	case 0:
		return 0
	case 1:
		return int32(levels[0].level)
	}
	sum := 0.0
	for _, p := range levels {
		sum += p.weight
	}
	at := s.random.Float64() * sum
	for _, p := range levels {
		if at -= p.weight; at < 0 {
			return int32(p.level)
		}
	}
	return int32(levels[len(levels)-1].level)
}
