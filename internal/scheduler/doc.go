// Package scheduler is the loop that moves jobs: it claims what the queue has
// ready, asks the core for a permit, submits the job, records how the attempt
// ended, and lets the policy decide what follows.
//
// In come queue entries and the core's notifications; out go ops on the store
// and, for whoever watches, updates. It promises that an outcome is recorded
// once, under the claim's fence, and only after every process of the attempt
// is dead; and that a job whose attempt was cut short goes back to the queue
// with the agent's session, whichever process died.
package scheduler
