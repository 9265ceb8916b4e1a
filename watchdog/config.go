package watchdog

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Config is everything that can be set about the watchdog.
type Config struct {
	// The time over which rates and latencies are taken.
	Window     job.Duration     `json:"window" above:"0s"`
	Stall      StallConfig      `json:"stall" yaml:",inline"`
	Repetition RepetitionConfig `json:"repetition" yaml:",inline"`
	// What is done about an overloaded host, in stages; each keeps what the ones before it do.
	Defence    DefenceConfig    `json:"defence"`
	Escalation EscalationConfig `json:"escalation" yaml:"-"`
}

// StallConfig says when a run is stalled.
type StallConfig struct {
	// A run that neither prints nor uses CPU for so long is stopped as STALLED; `0s` never. One that
	// computes quietly goes on.
	After job.Duration `json:"stall_after" min:"0s"`
	// Using less of one CPU than this over `stall_after` is not using it.
	MinCPURatio float64 `json:"min_cpu_ratio" min:"0" max:"1"`
}

// RepetitionConfig says when a run goes in circles.
type RepetitionConfig struct {
	// So many like tool calls with like results in a row stop a run as STALLED; `0` never.
	Calls int `json:"calls" yaml:"repeated_calls" min:"2" want:"2 or more, since 1 would end every run at its first call" zero:"any number"`
}

// DefenceConfig sets the stages.
type DefenceConfig struct {
	// Which value of which metric leads to which stage.
	Thresholds Thresholds `json:"thresholds" rows:"below" otherwise:"see below"`
	// How long each stage lasts at least, so that they do not flap.
	Dwell Dwell `json:"dwell"`
	// So many runs must have ended within the window before their rates mean anything.
	MinRuns int `json:"min_runs" min:"1"`
	// The part of a kind's runs that must be sick for `open_breaker` to take it out.
	SickRatio float64 `json:"sick_ratio" above:"0" max:"1"`
	// For how long its jobs go to other kinds then; after that its breaker decides.
	OpenFor job.Duration `json:"open_for" above:"0s"`
	// The part of the concurrency that is left from `throttle` on.
	ThrottleRatio float64 `json:"throttle_ratio" above:"0" max:"1"`
	// Of `interactive`, `standard`, `batch`.
	ShedClasses []job.Class `json:"shed_classes"`
	// Tenants that are treated as if a person waited for all their work.
	ProtectTenants []job.Tenant `json:"protect_tenants,omitempty"`
}

// Dwell is how long each stage lasts at least.
type Dwell struct {
	// Nothing is kept away.
	Normal job.Duration `json:"normal" above:"0s" want:"a duration above 0s, or the stages flap"`
	// Jobs of `shed_classes` are kept away.
	Shed job.Duration `json:"shed" above:"0s" want:"a duration above 0s, or the stages flap"`
	// Fewer jobs run at once, and other jobs go to a smaller choice where they have one.
	Throttle job.Duration `json:"throttle" above:"0s" want:"a duration above 0s, or the stages flap"`
	// Kinds of worker that are sick are taken out, one at a time.
	OpenBreaker job.Duration `json:"open_breaker" above:"0s" want:"a duration above 0s, or the stages flap"`
	// A person is told, and only work that somebody waits for begins.
	Escalate job.Duration `json:"escalate" above:"0s" want:"a duration above 0s, or the stages flap"`
}

func (d Dwell) of(s Stage) time.Duration {
	return [stageCount]job.Duration{d.Normal, d.Shed, d.Throttle, d.OpenBreaker, d.Escalate}[s].Std()
}

// EscalationConfig says when a fact becomes an escalation.
type EscalationConfig struct {
	// When a kind of worker crashes again and again: crashes of that kind, at most half of them of one
	// tenant; or of several jobs of one tenant, for which alone it is isolated then.
	WorkerCrashes Burst `json:"worker_crashes"`
	// When something submits newer versions of a job in a loop: runs in one folder that were cancelled
	// for newer ones.
	LatestWins Burst `json:"latest_wins"`
	// When cores crash again and again.
	CoreCrashes Burst `json:"core_crashes"`
	// When the disk of the state directory is nearly full.
	Disk Disk `json:"disk"`
	// When the wall clock jumped.
	ClockJump ClockJumpConfig `json:"clock_jump"`
}

// Burst is a number of like events within a time.
type Burst struct {
	// So many of these within the time below; `0` any number.
	Count int `json:"count" min:"1" max:"1000" zero:"any number"`
	// The time within which they are counted.
	Within job.Duration `json:"within" min:"0s"`
	// Until what was put out of use is used again; `0s`: until an operator says so.
	CoolDown job.Duration `json:"cool_down" min:"0s"`
}

// Disk says when a disk is nearly full: less than MinFreeBytes free and also
// less than MinFreeRatio of it (so that neither a huge nor a tiny disk is
// judged by the other's measure), or less than MinFreeRatio/2 of its inodes.
// It has recovered when twice as much is free.
type Disk struct {
	// Less than so many bytes are free; `0` it never is.
	MinFreeBytes int64 `json:"min_free_bytes" min:"0"`
	// And less than this part of it, at most `0.5`; or half of this part of its inodes.
	MinFreeRatio float64 `json:"min_free_ratio" min:"0" max:"0.5" want:"a ratio of at most 0.5, or no disk could recover"`
	// Until anything begins again, once twice as much is free.
	CoolDown job.Duration `json:"cool_down"`
}

// ClockJumpConfig says what a jump of the wall clock is.
type ClockJumpConfig struct {
	// By so much or more; `0s` no jump matters.
	Above job.Duration `json:"above" min:"0s"`
	// Until anything begins again.
	CoolDown job.Duration `json:"cool_down" min:"0s"`
}

// Default returns settings for a host of one person or a small team. Where no
// source is named, the number is a choice.
func Default() Config {
	const (
		second = job.Duration(time.Second)
		minute = job.Duration(time.Minute)
		mib    = 1 << 20
	)
	return Config{
		// Runs take minutes: less would hold too few of them, more would remember
		// an overload for longer than it lasts.
		Window: 10 * minute,
		Stall: StallConfig{
			// The official SDKs of OpenAI and Anthropic wait up to 10 minutes for a
			// model's answer, and a program that waits for one prints nothing and
			// uses no CPU. Half of job.DefaultTimeout leaves time to try again.
			After: 15 * minute,
			// Nine seconds in 15 minutes: the timers of an idle Node.js or Bun program
			// stay below, a compiler passes it in seconds.
			MinCPURatio: 0.01,
		},
		// Gemini CLI calls 5 like calls a loop and OpenCode 3 (which then asks its
		// user). They look at the call alone and we look at its result too, but we
		// end the run, and an agent may well ask a few times for something that
		// takes time: twice the larger.
		Repetition: RepetitionConfig{Calls: 10},
		Defence: DefenceConfig{
			Thresholds: Thresholds{
				// A third of job.DefaultTimeout: people wait for that work.
				QueueOldest: Ladder{Shed: Band{Enter: 600_000, Leave: 300_000}},
				QueueDepth:  Ladder{Shed: Band{Enter: 1000, Leave: 500}},
				// Above one half a breaker opens: the failure rate of Hystrix
				// (circuitBreaker.errorThresholdPercentage) and resilience4j
				// (failureRateThreshold), both 50 %.
				TimeoutRate: Ladder{Shed: Band{0.25, 0.1}, Throttle: Band{0.4, 0.2}, OpenBreaker: Band{0.5, 0.25}, Escalate: Band{0.9, 0.5}},
				// The gentle stages of a stop take 2 s and 5 s, so above 7 s the host is
				// slow to kill; after 17 s the tree is a ghost.
				CancelLatency: Ladder{Throttle: Band{10_000, 8000}, Escalate: Band{15_000, 12_000}},
				// A run that waits a minute for its folder holds no slot, but what else is
				// begun for that folder only makes the line longer.
				LockWait: Ladder{Shed: Band{60_000, 30_000}},
				// A heartbeat goes out each second, and a core that owes an answer for
				// 10 s is replaced.
				Heartbeat: Ladder{Shed: Band{1000, 500}, Throttle: Band{2500, 1000}, Escalate: Band{5000, 2500}},
				// The core buffers at most some MiB for each run; it needs no more
				// than 100 MiB.
				RSS: Ladder{Shed: Band{512 * mib, 384 * mib}, Throttle: Band{1024 * mib, 768 * mib}, Escalate: Band{2048 * mib, 1536 * mib}},
				// The core only passes bytes on: a whole CPU is a flood.
				CPU:        Ladder{Shed: Band{1, 0.7}, Throttle: Band{2, 1.4}},
				Goroutines: Ladder{Throttle: Band{10_000, 5000}, Escalate: Band{50_000, 25_000}},
				// Go raises the soft limit to the hard one, and Linux gives 4096 where
				// nobody sets it (INR_OPEN_MAX in include/uapi/linux/fs.h).
				OpenFiles: Ladder{Shed: Band{2048, 1536}, Throttle: Band{3072, 2048}, Escalate: Band{3840, 3072}},
			},
			Dwell:         Dwell{Normal: 10 * second, Shed: 15 * second, Throttle: 30 * second, OpenBreaker: minute, Escalate: 5 * minute},
			MinRuns:       5,
			SickRatio:     0.5,    // as TimeoutRate
			OpenFor:       minute, // resilience4j: waitDurationInOpenState, 60 s
			ThrottleRatio: 0.5,    // halving, as TCP does (RFC 5681, section 3.1)
			ShedClasses:   []job.Class{job.Batch},
		},
		Escalation: EscalationConfig{
			WorkerCrashes: Burst{Count: 5, Within: minute, CoolDown: 10 * minute},
			// Nobody changes their mind so often: a program resubmits in a loop.
			LatestWins: Burst{Count: 10, Within: minute, CoolDown: 5 * minute},
			// More than 5 in 60 s, the restart intensity of the supervisor; nothing
			// but a person mends a core that cannot run.
			CoreCrashes: Burst{Count: 6, Within: minute},
			// 10 % of the bytes and 5 % of the inodes: kubelet's hard eviction
			// thresholds, nodefs.available and nodefs.inodesFree.
			Disk: Disk{MinFreeBytes: 1024 * mib, MinFreeRatio: 0.1, CoolDown: 5 * minute},
			// A permit lives 5 s unused: a smaller jump can change no decision.
			ClockJump: ClockJumpConfig{Above: 5 * second, CoolDown: 30 * second},
		},
	}
}
