package codex

import (
	_ "embed" // of the lockfile

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

//go:embed package-lock.json
var lockfile []byte

// Package is the version that the recordings in testdata are of.
func (Adapter) Package() worker.Package {
	return worker.Package{Name: "@openai/codex", Version: "0.169.0", Oldest: "0.169.0", Program: program.Name, Bytes: 425e6, FolderVariables: []string{program.FolderVariable}, Lock: lockfile}
}

// Provider names the provider of its models.
func (Adapter) Provider() string { return "openai" }

// ClosedSchemas holds: the API refuses an object that is left open.
func (Adapter) ClosedSchemas() {}

// Converses is all: see talk.go.
func (Adapter) Converses() worker.Conversation {
	return worker.Conversation{Messages: true, Questions: true, Interrupts: true, Forks: true}
}

// SessionFiles are a thread's record.
func (Adapter) SessionFiles(thread string) []string {
	if !agentcli.Plain(thread) {
		return nil
	}
	return []string{"codex/sessions/*/*/*/rollout-*" + thread + ".jsonl"}
}

// Moves is true: the program takes the folder that it is started in.
func (Adapter) Moves() bool { return true }

// Tooled implements worker.Tooled.
func (Adapter) Tooled() bool { return true }
