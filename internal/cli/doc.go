// Package cli is the scheduler program: its command line, one file a command, and
// what joins its parts.
//
// Run is the whole of it. What a program of its own adds, adapters and policies,
// comes by Options; package app is how others reach them. The same program is also
// the core that it starts, so that the core has the same adapters.
package cli
