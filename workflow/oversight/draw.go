package oversight

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/agentsched/agentsched/job"
)

// Draw returns the number in [0, 1) by which the spot check of an attempt is
// decided. It is the first 53 bits of SHA-256 over the seed and the attempt's
// number, 8 bytes each, big-endian, and the job's id, divided by 2^53: the same for
// ever, on every machine, and independent from one attempt to the next.
func Draw(id job.ID, attempt int, seed uint64) float64 {
	text := binary.BigEndian.AppendUint64(nil, seed)
	text = binary.BigEndian.AppendUint64(text, uint64(attempt))
	sum := sha256.Sum256(append(text, id...))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53)
}
