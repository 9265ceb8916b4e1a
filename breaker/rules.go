package breaker

import "github.com/agentsched/agentsched/job"

// effect is what an attempt's end says about one breaker.
type effect int

const (
	// excluded: nothing. It is not counted; a probe's slot is free again.
	excluded effect = iota
	// success: it is well.
	success
	// failure: it is sick.
	failure
	// limited: it is well but wants to be left alone; the breaker opens at once
	// until the time that was named, and no failure is counted.
	limited
)

// rule is what a class says about the kind of worker (its program, its login,
// this host's way to it) and about the model that its provider serves.
type rule struct{ kind, model effect }

// rules says for each class against whom it speaks. A job that failed on its
// own merits is a success here: the program ran and the provider answered.
var rules = map[job.ErrorClass]rule{
	job.NoError:       {success, success},
	job.VerifyFailed:  {success, success}, // a failing test suite is not a sick provider
	job.ConflictClass: {excluded, excluded},
	job.InvalidOutput: {success, success}, // answered, though not in the form that was asked for
	job.HumanRejected: {success, success}, // answered, though not to a person's liking
	job.Budget:        {success, success}, // ran until the job's own limit stopped it

	job.SandboxClass: {success, success}, // ran until it was stopped for what it tried

	job.Server:  {failure, failure}, // a sick provider is all its kind has, or one of a few: the ratio decides
	job.Network: {failure, failure},
	job.Timeout: {failure, failure}, // a hang of the worker and one of the provider look the same
	job.Stalled: {failure, failure},
	job.Crash:   {failure, excluded}, // the program died; its provider may be well

	// A login is not healed by waiting, but it fails every job of the kind (of
	// the provider, for programs that know several) until a person repairs it,
	// and a job that fails with it is a dead letter. Open, the breaker spends
	// one job on each probe, and the others fall back or wait.
	job.Auth: {failure, failure},

	// Of the model, which is named in the choice; if none is, of the kind (see effectOf).
	job.RateLimit: {excluded, limited},

	job.CancelledClass:    {excluded, excluded}, // it was stopped before it could tell
	job.ResourceExhausted: {excluded, excluded}, // the host's memory or disk, the job's context window
	job.Config:            {excluded, excluded}, // this job or this host is set up wrongly
	// Also every script that ends with a status of its own: neither well nor
	// sick can be read from it.
	job.Unknown: {excluded, excluded},
}

// effectOf returns what class says about the breaker of key, for an attempt
// that ran with a model named or not. A class without a rule says nothing.
func effectOf(class job.ErrorClass, key Key, modelNamed bool) effect {
	r := rules[class]
	if key.Model != "" {
		return r.model
	}
	if r.model == limited && !modelNamed {
		return limited
	}
	return r.kind
}
