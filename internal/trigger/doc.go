// Package trigger submits jobs when it is time, when files change, when a
// webhook is called and when a command prints something new.
//
// In come the triggers of the configuration (Settings) and a Submit that takes
// a Firing; Run fires them until its context ends, Reload replaces them without
// disturbing those that stay as they are, Status tells how each is doing.
//
// It promises that a time which was due is not lost: a firing counts as done
// when Submit has returned nil and that is written down, and until then it is
// tried again, over restarts too. So after a crash between the two a firing may
// be submitted a second time, with the ID that it had the first time. What time
// passed while nobody ran is made up for as the trigger's Misfire says. It
// promises nothing about files that changed meanwhile, and a webhook that could
// not be submitted is answered with an error, so that its sender knows.
//
// Decisions about time are in due.go and schedule.go, which have no clock.
package trigger
