// Package workflow decides how jobs that belong together hang together: which
// may run now, with which words, which never will, and which are restarted when another
// of their team has ended.
//
// In come specifications (Check, NewPlan) or all that is known of a batch's
// jobs (Batch.Advance, Teams.Decide); out come problems, a plan, and moves as data. Nothing here
// does anything, reads a clock or keeps a state: asked twice, it answers the same,
// so whoever was killed may just ask again. docs/workflows.md has the rules.
package workflow
