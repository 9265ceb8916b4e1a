package claude

import (
	_ "embed" // of the lockfile

	"github.com/agentsched/agentsched/worker"
)

//go:embed package-lock.json
var lockfile []byte

// Package is the version that the recordings in testdata are of.
func (Adapter) Package() worker.Package {
	return worker.Package{Name: "@anthropic-ai/claude-code", Version: "2.1.197", Program: program.Name, Bytes: 245e6, Script: "install.cjs", FolderVariables: []string{program.FolderVariable}, Lock: lockfile}
}

// Provider names the provider of its models.
func (Adapter) Provider() string { return "anthropic" }
