// Package supervisor keeps N agentcores alive. For each it spawns a process,
// says hello, configures it, asks for its heartbeat, and replaces it when it
// dies, hangs, floods or tears the wire; a core over its limits of memory, CPU
// or slowness is drained first, and so is one that an operator wants replaced.
// A core in a crash loop is isolated: left alone for a while that grows. The reports
// of those that crashed are kept, the newest fifty.
//
// In comes the command of the core; out go, to one Handler and for each core in
// this order: CoreUp, its notifications and perhaps CoreDraining, CoreRuns,
// CoreDown. CoreDown is told only after every process that the core left behind
// is dead and the processes of other cores are untouched, so whoever hears it
// may give the core's jobs to another.
//
//	Supervisor ── one seat for each of the N cores
//	seat       ── one core after the other: starts, waits, isolates
//	Core       ── one process and the conversation with it
//	health     ── judges heartbeats        ┐ without clock, process or goroutine
//	crashLoop  ── judges how often it dies ┘
package supervisor
