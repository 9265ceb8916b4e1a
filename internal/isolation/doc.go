// Package isolation says what is out of use: everything, a kind of worker, a
// workspace, or a trigger.
//
// In come escalations; out goes the book of isolations, which the scheduler
// keeps over restarts and every core enforces. It promises one entry a scope,
// of which the longer lasting one stays, and that an isolation ends by itself
// with its cool-down or when an operator lifts it.
package isolation
