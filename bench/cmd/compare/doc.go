// Command compare measures the scheduler and its peers on the same disk in the
// same run and prints what came of it beside what was aimed at.
//
// In come flags: a folder on a real disk, and which cases; out goes one table.
// Each figure is the median of several short rounds in which ours and the peer
// take turns, so that whatever else the machine does hits both. Nothing is left
// behind: no process, and no file unless -keep is given. docs/benchmarks.md
// tells what each row means.
package main
