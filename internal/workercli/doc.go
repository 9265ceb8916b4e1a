// Package workercli puts the three agent CLIs on the machine: codex, claude
// and opencode, each at the one version that this program was tried with.
//
// A folder and the kinds that are wanted come in, the paths of their
// executables come out. An install is there whole or not at all: npm works in
// a temporary folder beside it, which is renamed once its program has told its
// version. What is there already costs a few stats and no npm; two processes
// that want the same take turns.
package workercli
