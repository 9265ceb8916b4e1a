package opencode

import (
	_ "embed" // of the lockfile

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

//go:embed package-lock.json
var lockfile []byte

// Package is the version that the recordings in testdata are of.
func (Adapter) Package() worker.Package {
	return worker.Package{Name: "opencode-ai", Version: "1.18.33", Oldest: "1.18.3", Program: program.Name, Bytes: 370e6, Script: "postinstall.mjs", Lock: lockfile}
}

// SessionFiles are the database of all sessions of the run's private folder.
func (Adapter) SessionFiles(session string) []string {
	if !agentcli.Plain(session) {
		return nil
	}
	return []string{"data/opencode/opencode*.db", "data/opencode/opencode*.db-wal", "data/opencode/storage"}
}

// Moves is false: the program goes on in the folder that the session began in, wherever it is started.
func (Adapter) Moves() bool { return false }

// Tooled implements worker.Tooled.
func (Adapter) Tooled() bool { return true }
