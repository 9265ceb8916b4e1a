// Package scheduler runs the loop that moves jobs. The loop asks schedule.Machine what
// follows from what has happened, and does it: it commits ops to the store, calls the
// cores, and tells listeners.
//
// It promises that an outcome is recorded once, under the claim's fence, and only after
// every process of the attempt is dead; and that a job whose attempt was cut short goes
// back to the queue with the agent's session, whichever process died.
package scheduler
