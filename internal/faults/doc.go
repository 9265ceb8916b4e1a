// Package faults is the fault-injection suite and nothing else. From one seed
// comes a scenario: a few jobs whose workers succeed, fail, hang, fork,
// daemonise, flood, die in the middle of a line; one to three cores; and faults
// that strike amid it: cores and schedulers killed or stopped, frames torn, a
// disk that is full, a wall clock that jumps, a scheduler that is frozen for longer
// than its permits are valid. The real programs run it, and are
// started again until every job has ended, as a user would. Then, and while it
// goes on, what the scheduler promises is checked.
//
// AGENTSCHED_SEED runs one scenario again, AGENTSCHED_SCENARIOS says how many
// are run (200; 10 with -short). Some hold their runs at sandbox level strict, the
// others at standard, as far as the host can; AGENTSCHED_FAULTS_LEVEL says one level
// for all. In a third of them, the programs have the race detector, and what it finds
// fails the scenario; with AGENTSCHED_FAULTS_RACE=0 in none. Clocks jump on amd64 only (see clock_linux_amd64_test.go), and what
// is checked is promised on Linux only: elsewhere the package is empty. An
// ordinary user has other scenarios of a seed: only root makes clocks jump, mounts
// a disk that fills, counts the open files of scheduler and cores, and is sure to have cgroups.
package faults
