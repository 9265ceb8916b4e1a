package telemetry

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/agentsched/agentsched/job"
)

// traceID returns the id of the trace that a job belongs to: its own if that is
// one (32 hexadecimal digits, not all of them 0), else one that follows from it,
// or from the job's id.
func traceID(own string, id job.ID) (t [16]byte) {
	if len(own) == 2*len(t) {
		if n, err := hex.Decode(t[:], []byte(own)); err == nil && n == len(t) && t != [16]byte{} {
			return t
		}
	}
	text := "trace " + own
	if own == "" {
		text = "job " + string(id)
	}
	sum := sha256.Sum256([]byte(text))
	return [16]byte(sum[:16])
}
