// Package workercli puts the agents' CLIs on the machine, each at the one version
// that its adapter was tried with.
//
// The adapters say what is to be installed (worker.Packaged). Given a folder and
// the kinds that are wanted, Ensure returns the paths of their executables. An install is there whole or not at all: npm works in
// a temporary folder beside it, which is renamed once its program has told its
// version. What is there already costs a few stats and no npm; two processes
// that want the same take turns.
package workercli
