// Package agentcli is what the adapters of agents' command line programs have in
// common: where the program and the user's login are, how a run refers to the
// workspace and resumes a session, and how words, statuses and headers of a
// failure become a class and a time to come back.
//
// It also installs such programs from npm, each at the one version that its adapter was
// tried with (Catalog).
//
// An adapter of a further program may use as much of it as fits. Nothing here
// knows a particular program.
package agentcli
