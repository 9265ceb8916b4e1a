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
//
// TestFleet does the same with a fleet: ten nodes, three schedulers and a PostgreSQL server, each in a network namespace
// of its own. Its runs report to the suite too, so that whatever runs on two nodes at the same time, or beyond a limit
// of all nodes, is seen when it begins. A node that is frozen as a whole cannot end its runs: for those, what is checked is how long they last
// when it goes on (docs/fleet.md). Beside AGENTSCHED_SEED and AGENTSCHED_SCENARIOS (100; 10 where nothing is soaked),
// AGENTSCHED_KEEP=1 keeps the folders of what was played. The database's wall clock goes 2 % faster or slower than the
// others in two of three, and jumps, where libfaketime is installed. The namespaces have no names: the kernel removes
// them with the last process in them. A scenario of 30 s has some 40 jobs, of which one alone is more than
// the 2 % that shares may be off: TestFleetShares has enough of them, and is soaked.
package faults
