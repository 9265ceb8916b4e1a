// Package statedir is the layout of a state directory and the lock that lets
// one scheduler at a time work on it.
//
// In comes a path; out come the paths of everything that is kept below it and
// the instance id, made once, that tags every process ever started for it.
// Nothing else in the project builds a path below the state directory.
// It also has the small documents that lie there, or in a database that several
// schedulers share (Documents), and opens what an attempt left there, compared with its recorded SHA-256.
package statedir
