// Package app makes a scheduler of your own: the whole program, with kinds of worker
// and policies compiled in that this project does not have.
//
//	func main() {
//		app.Main(app.WithAdapter("mine", mine.Adapter{}), app.WithPolicy("fifo", fifo.New))
//	}
//
// Such a program has every command of the scheduler, and is its own core: the
// scheduler starts the same program once more, which then knows the same adapters.
// Build it without cgo (CGO_ENABLED=0), as the scheduler itself is.
//
// What such a program relies on is this package and worker, policy and job.
// docs/embedding.md shows a whole program.
package app

import (
	"os"

	"github.com/agentsched/agentsched/internal/cli"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/worker"
)

// Option adds something to the program.
type Option func(*cli.Options)

// WithAdapter adds a kind of worker. Jobs name it like the built-in ones (worker:
// NAME), and the configuration sets it up under workers.NAME; neither is needed for
// the other. name is 1 to 32 of a-z, 0-9 and, not
// first, "-" and "_". The name of a built-in adapter replaces that one.
//
// The adapter is used by several processes, each of which calls main, and by many
// goroutines in each. See worker.Adapter for the contract, the optional interfaces in
// package worker for what else an adapter may say of itself, and package
// worker/workertest for the suite that it must pass.
func WithAdapter(name string, a worker.Adapter) Option {
	return func(o *cli.Options) {
		if o.Adapters == nil {
			o.Adapters = map[string]worker.Adapter{}
		}
		o.Adapters[name] = a
	}
}

// WithPolicy adds a way to say who is next. The configuration chooses it by its name
// (policy: {name: NAME}); the settings beside the name are what newPolicy is given.
// newPolicy is called when the scheduler starts, and again each time that these
// settings change while it runs. It must not keep anything between two calls: the
// scheduler tells each new policy all that it is to know. The name of a built-in
// policy replaces that one.
func WithPolicy(name string, newPolicy func(policy.Config) (policy.Policy, error)) Option {
	return func(o *cli.Options) {
		if o.Policies == nil {
			o.Policies = map[string]func(policy.Config) (policy.Policy, error){}
		}
		o.Policies[name] = newPolicy
	}
}

// Main runs the scheduler program with the arguments and standard streams of this
// process, and ends the process with its exit code: 0 if everything asked for
// succeeded, 1 if a job or the command failed, 2 if the command line, a file or an
// option is not right, 130 if it was stopped by a signal. It must be the first thing
// that main calls, since the program is started for several purposes.
func Main(options ...Option) {
	var o cli.Options
	for _, option := range options {
		option(&o)
	}
	os.Exit(cli.Run(o))
}
