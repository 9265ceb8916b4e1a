package ipc

import "github.com/agentsched/agentsched/job"

// MethodReadPatch is called by the core on the scheduler: ReadPatch → ReadPatchResult.
const MethodReadPatch = "read_patch"

// ReadPatch asks for a piece of the patch of another job, which is not on the core's host. The core asks while it prepares
// the workspace, one piece after the other, and compares the whole with the recorded digest. It waits 30 seconds for each.
// The scheduler answers for a run that the core has, and for a path of SubmitJob.Resolved.Patches or SubmitJob.Named.
type ReadPatch struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Path    string `json:"path"`   // job.Patch.Path, as SubmitJob has it
	Offset  int64  `json:"offset"` // where the piece begins, in bytes
}

// ReadPatchResult is a piece of a patch.
type ReadPatchResult struct {
	Data []byte `json:"data"` // base64, at most MaxParcelPiece bytes; empty at the end
	// Missing says why there is no such file, in words for the job's message; "": there is.
	Missing string `json:"missing,omitempty"`
}
