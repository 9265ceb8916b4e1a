// Package supervisor keeps an agentcore alive: it spawns one, says hello,
// configures it, asks for its heartbeat, and replaces it when it dies, hangs,
// floods or tears the wire.
//
// In comes the command of the core; out go, to one Handler and in this order:
// CoreUp, the core's notifications, CoreDown. CoreDown is told only after every
// process that the core left behind is dead, so whoever hears it may give the
// core's jobs to another.
package supervisor
