// Package agentcore is the core's runtime. It joins the wire, the permit gate with its
// circuit breakers and its guard (isolations, staged defence), the workspaces and the
// runner of workers, and ends them in the right order.
//
// It answers the scheduler's requests, sends the events of the runs and, for each accepted
// submit_job, exactly one on_job_completed: when the run's last process is gone, its
// artifacts are collected and its locks are free. It stores nothing durable. When the
// scheduler is gone, it stops its runs and exits.
package agentcore
