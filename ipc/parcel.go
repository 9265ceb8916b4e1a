package ipc

import "github.com/agentsched/agentsched/job"

// MethodReadParcel is called by the core on the scheduler: ReadParcel → ReadParcelResult.
const MethodReadParcel = "read_parcel"

// MaxParcelPiece is how many bytes of a parcel one answer holds at most: as base64 they
// fit into MaxFrame.
const MaxParcelPiece = 512 << 10

// ReadParcel asks for a piece of a parcel, the folder that a job's workspace is made of (job.Parcel). The
// core asks while it prepares the workspace, one piece after the other, and compares the whole with the digest. It waits
// 30 seconds for each. The scheduler answers for a run that the core has, and for the parcel that its job names or the one
// that this builds on.
type ReadParcel struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Digest  string `json:"digest"`
	Offset  int64  `json:"offset"` // where the piece begins, in bytes
}

// ReadParcelResult is a piece of a parcel.
type ReadParcelResult struct {
	Data []byte `json:"data"` // base64; empty at the end of the parcel
	Size int64  `json:"size"` // of the whole parcel, in bytes
}
