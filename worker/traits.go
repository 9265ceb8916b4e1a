package worker

import "github.com/agentsched/agentsched/job"

// This file holds the optional parts of an Adapter. Each tells one thing about
// the program, and is left out where it does not hold: nothing about a kind of
// worker is written down anywhere else.

// Folderless is an optional part of an Adapter, for one whose runs may do
// without private folders: making and removing them takes longer than starting
// a small program.
type Folderless interface {
	// Folderless reports whether neither Start nor the program of t needs t.Home
	// or t.Scratch to be there. Both are named all the same.
	Folderless(t *Task) bool
}

// Scripted is an optional part of an Adapter, for one whose program does what the
// job's instructions say and nothing else, such as a shell. A crash of it says
// nothing about the kind of worker. The instructions are passed on unchanged; what
// a model would read beside them (input, feedback, conflicts) is in variables.
type Scripted interface {
	// Scripted does nothing: it says that the interface is meant.
	Scripted()
}

// Streaming is an optional part of an Adapter, for one whose sessions can be the
// worker of a stream of events (see StreamLines and Forward).
type Streaming interface {
	// Streaming does nothing: it says that the interface is meant.
	Streaming()
}

// Stepping is an optional part of an Adapter, for one whose sessions report durable
// steps (see Store) and are given those of earlier attempts in Task.Steps.
type Stepping interface {
	// Stepping does nothing: it says that the interface is meant.
	Stepping()
}

// Checkpointing is an optional part of an Adapter, for one whose programs can stop at
// the boundary of a step and go on from there in another attempt (see Checkpoint).
type Checkpointing interface {
	// Checkpointing does nothing: it says that the interface is meant.
	Checkpointing()
}

// Conversing is an optional part of an Adapter, for one whose programs can be talked to
// while they run.
type Conversing interface {
	// Converses says what its sessions can take.
	Converses() Conversation
}

// Conversation is what the sessions of an adapter can take.
type Conversation struct {
	Messages   bool // Message: words for a running program
	Questions  bool // they Ask, and wait for the Answer
	Interrupts bool // Interrupt
	Forks      bool // Task.Fork
}

// Portable is an optional part of an Adapter, for one whose sessions can go on on another
// host: their files are put below the Home of the task there before Start; see also Task.Moved.
type Portable interface {
	// SessionFiles returns patterns (see fs.Glob, where a folder stands for all that is
	// below it) of the files below Home that hold a session, and no file that a user's login
	// or a configuration is in. They are read when the program has ended.
	SessionFiles(session string) []string
	// Moves reports whether a session goes on in a workspace that has another path than before.
	Moves() bool
}

// Programless is an optional part of an Adapter, for one that has no program of
// its own: the worker's settings must name a command. A job cannot name such an
// adapter as its worker unless the configuration has a kind of that name.
type Programless interface {
	// Programless does nothing: it says that the interface is meant.
	Programless()
}

// ClosedSchemas is an optional part of an Adapter, for one whose program refuses
// the JSON schema of an answer unless every object in it has
// "additionalProperties": false. It is then not given schemas that are left open.
type ClosedSchemas interface {
	// ClosedSchemas does nothing: it says that the interface is meant.
	ClosedSchemas()
}

// Provided is an optional part of an Adapter, for one whose program asks one
// provider for models by their bare names. Limits of rate and cost are by
// provider, so that two kinds of worker that use one account share them.
type Provided interface {
	// Provider returns the provider's name as limits call it, e.g. "openai".
	Provider() string
}

// Packaged is an optional part of an Adapter, for one whose program can be
// installed from npm by `scheduler install-workers`.
type Packaged interface {
	// Package returns what is installed.
	Package() Package
}

// Package is an npm package at one version. A new version belongs here only with
// transcripts of what it prints.
type Package struct {
	Name    string // e.g. "@openai/codex"
	Version string // exact, e.g. "0.169.0"
	// Oldest is the oldest version that is known to work; older ones are refused. ""
	// means that none is.
	Oldest string
	// Program is the name of the executable below node_modules/.bin.
	Program string
	Bytes   int64 // on disk with all that it needs, about
	// FolderVariables name the folders in which the program writes even when it is
	// asked for its version, beside HOME and those of XDG.
	FolderVariables []string
	// Script is the package's own postinstall script, where the package is a stub
	// until that has put the native binary in place; "" for none. It runs without
	// network.
	Script string
	// Lock is the package-lock.json: the packages for every system, with the hashes
	// of their content. Make it beside the package.json of an install with
	//	npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved
	Lock []byte
}

// Credentialed is an optional part of an Adapter, for one whose program needs a
// login or a key.
type Credentialed interface {
	// Credentials returns what to do where neither a login nor a key is found for
	// a program with these settings; "" if there is one. It looks at files and
	// variables and contacts no server: what it finds may have expired.
	Credentials(s job.WorkerSettings, getenv func(name string) string) (todo string)
}

// Modelled is an optional part of an Adapter, for one whose program asks models that a
// gateway can stand for.
type Modelled interface {
	// Upstream returns who answers the models of a program with these settings, s.Model
	// being the run's if that has one. getenv finds the variables of the user's
	// environment. It reads files, starts nothing and contacts no server. The error is an *UnservedError where no gateway can stand
	// for what the user has configured, and a *Failure of class AUTH where there is neither
	// a key nor a login.
	Upstream(s job.WorkerSettings, getenv func(name string) string) (Upstream, error)
}

// MissingKey is Credentials where the settings name an endpoint: the key that goes
// with it is all that counts. The second result is false if they name none.
func MissingKey(s job.WorkerSettings, getenv func(name string) string) (todo string, own bool) {
	switch {
	case s.BaseURL == "":
		return "", false
	case s.KeyEnv != "" && getenv(s.KeyEnv) == "":
		return "set " + s.KeyEnv + ", the variable that key_env names, in the scheduler's environment", true
	}
	return "", true
}

// TraitsOf returns what the optional parts of an adapter say.
func TraitsOf(a Adapter) job.WorkerTraits {
	_, script := a.(Scripted)
	_, streams := a.(Streaming)
	_, programless := a.(Programless)
	_, closed := a.(ClosedSchemas)
	talks, forks := a.(Conversing)
	if p, portable := a.(Portable); forks {
		forks = talks.Converses().Forks && (!portable || p.Moves()) // the copy works in another folder
	}
	return job.WorkerTraits{Script: script, Streams: streams, NeedsCommand: programless, ClosedSchemas: closed, Forks: forks}
}

// AllTraits returns those of several adapters, by the adapters' names.
func AllTraits(adapters map[string]Adapter) map[string]job.WorkerTraits {
	all := make(map[string]job.WorkerTraits, len(adapters))
	for name, a := range adapters {
		all[name] = TraitsOf(a)
	}
	return all
}

// Interactive is an optional part of an Adapter, for one whose program a person can use in a terminal, to go on by hand
// with the session of a job and leave it to the job's next attempt.
type Interactive interface {
	// Interactive prepares the program as Start does for a run of t, and returns its command, whose standard files will be a
	// terminal. t.Instructions is empty. t.Asked is set: what the job was not granted, the program asks the person in front of it.
	Interactive(t *Task) (Command, error)
}
