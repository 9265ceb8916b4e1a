package claude

import (
	_ "embed" // of the lockfile

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

//go:embed package-lock.json
var lockfile []byte

// Package is the version that the recordings in testdata are of.
func (Adapter) Package() worker.Package {
	return worker.Package{Name: "@anthropic-ai/claude-code", Version: "2.1.197", Oldest: "2.1.175", Program: program.Name, Bytes: 245e6, Script: "install.cjs", FolderVariables: []string{program.FolderVariable}, Lock: lockfile}
}

// Provider names the provider of its models.
func (Adapter) Provider() string { return "anthropic" }

// SessionFiles are a session's record, and the folder with what its subagents and tools left.
func (Adapter) SessionFiles(session string) []string {
	if !agentcli.Plain(session) {
		return nil
	}
	return []string{"claude/projects/*/" + session + ".jsonl", "claude/projects/*/" + session}
}

// Moves is true: see home.bringSession.
func (Adapter) Moves() bool { return true }

// Converses is all: see talk.go.
func (Adapter) Converses() worker.Conversation {
	return worker.Conversation{Messages: true, Questions: true, Interrupts: true, Forks: true}
}

// Tooled implements worker.Tooled.
func (Adapter) Tooled() bool { return true }
