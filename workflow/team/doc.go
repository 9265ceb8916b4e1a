// Package team decides what a team of jobs does when a member ends, with the
// semantics of Erlang/OTP's supervisor.
//
// In come the teams of a workflow, what is known of their members' runs, and the
// log of what was decided before; out come actions as data: note, stop, restart,
// the team is done, the team has failed. There is no clock, no I/O and no state
// in here. The question may be asked at any time: carried out up to any point and
// asked again, the answer is the rest of what it was.
//
// The reference is OTP 27: the documentation of stdlib's supervisor, its source
// (supervisor.erl), and "Supervisor Behaviour" in OTP Design Principles. Where we
// differ, docs/teams.md says so.
package team
