package exec

// The types of the lines that a worker which streams prints besides; they are
// docs/pipelines.md's.
const (
	typePublish    = "publish"
	typeAck        = "ack"
	typeCheckpoint = "checkpoint"
)

// ofStream reports whether lines of a type are about the stream.
func ofStream(kind string) bool {
	return kind == typePublish || kind == typeAck || kind == typeCheckpoint
}
