// Package simulate shows before anything runs how a policy would share one
// scheduler's slots among tenants.
//
// In comes a workload: a YAML file that says how many slots there are, whose
// jobs arrive when, and how large they are. Out come, for each policy that is
// tried on it, the shares, waits and throughput that its tenants would have had,
// as a Result, which can be printed, drawn as SVG and written as JSON. Time is
// virtual and chance comes from the workload's seed alone, so that the same
// workload gives the same Result, and every policy meets the same jobs.
// docs/simulate.md describes the fields and the measures.
package simulate
