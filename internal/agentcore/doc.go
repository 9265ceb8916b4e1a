// Package agentcore is the core's runtime: it joins the wire, the permit gate
// with its breakers and its guard (isolations, staged defence), the workspaces
// and the runner of workers, and ends them in the right order.
//
// In come the scheduler's requests over ipc; out go answers, the events of the
// runs and, for each accepted submit_job, exactly one on_job_completed, after
// the run's last process is gone, its artifacts are collected and its locks
// are free. It keeps nothing durable: when the scheduler is gone it stops its
// runs and exits.
package agentcore
