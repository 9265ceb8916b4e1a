// Package top is a live view of a scheduler on a terminal: what runs, what waits
// and why, the share of each tenant against its target, workers with their
// breakers, rates, cost, and the stage of the watchdog.
//
// A Source comes in, which answers questions and passes on what the person asks
// for; frames go out. The view is a pure function of what was answered, the keys
// and the size, so that a test can look at every frame. It goes on through
// restarts of the scheduler and says since when it hears nothing, and no byte of
// a prompt, a log or a name acts upon the terminal.
package top
