package opencode

import (
	_ "embed" // of the lockfile

	"github.com/agentsched/agentsched/worker"
)

//go:embed package-lock.json
var lockfile []byte

// Package is the version that the recordings in testdata are of.
func (Adapter) Package() worker.Package {
	return worker.Package{Name: "opencode-ai", Version: "1.18.33", Program: program.Name, Bytes: 370e6, Script: "postinstall.mjs", Lock: lockfile}
}
