// Package progress shows a person, or a program, how the jobs of a run stand.
//
// The scheduler's updates come in; out goes a view that is redrawn in place on
// a terminal (Live), lines that make a readable log (Plain), JSON Lines (JSON),
// and at the end a table (Summary). A view never slows the scheduler, may be
// told from any goroutine, and lets no byte that a worker printed act upon the
// terminal: escape sequences and control characters are taken out first.
package progress
