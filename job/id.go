package job

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// ID identifies a job for ever: a UUIDv7 in its canonical text form, so that
// ids sort by the time of submission, e.g. "01a1fcce-6b90-7022-94af-83e4d513c5ef".
type ID string

// Short returns what an id is shown as where there is little room: its last 8
// characters. The first ones are those of all jobs of the same minute.
func (id ID) Short() string { return string(id[max(len(id)-8, 0):]) }

// NewID returns a fresh job id.
func NewID() ID { return ID(newUUID()) }

// AgentID names an agent on whose behalf jobs run, e.g. a process id; unique
// within its tenant.
type AgentID string

// Name is what the user calls the job: the `id` of a job file, unique within
// one run, e.g. "fix-login". It is also the name of the job's git branch and
// folder, hence its narrow alphabet (see ValidName).
type Name string

// maxNameLength leaves room for a prefix in a file name of 255 bytes.
const maxNameLength = 64

// ValidName reports why s cannot be a job's name, or nil: 1 to 64 letters,
// digits, '-', '_' and '.', beginning with a letter or a digit, without "..",
// and not ending in '.' or ".lock" (which git refuses in a branch).
func ValidName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty, want 1 to %d of a-z A-Z 0-9 and - _ . inside", maxNameLength)
	case len(s) > maxNameLength:
		return fmt.Errorf("has %d characters, at most %d are allowed", len(s), maxNameLength)
	case strings.Contains(s, ".."), strings.HasSuffix(s, "."), strings.HasSuffix(s, ".lock"):
		return fmt.Errorf("%q cannot be the name of a git branch: it must not contain \"..\" nor end in \".\" or \".lock\"", s)
	}
	for i, r := range s {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if alnum || i > 0 && (r == '-' || r == '_' || r == '.') {
			continue
		}
		return fmt.Errorf("%q: character %q is not allowed at position %d, want a-z A-Z 0-9 or, not first, one of - _ . there", s, r, i+1)
	}
	return nil
}

// BatchID identifies one invocation of `run`: the jobs that were submitted
// together and whose summary is printed together. A UUIDv7.
type BatchID string

// NewBatchID returns a fresh batch id.
func NewBatchID() BatchID { return BatchID(newUUID()) }

// InstanceID identifies a state directory and thereby every process that was
// ever started on its behalf: the first part of a run's tag. A UUIDv7.
type InstanceID string

// NewInstanceID returns a fresh instance id.
func NewInstanceID() InstanceID { return InstanceID(newUUID()) }

// PermitID identifies a permit, used at most once. A UUIDv7.
type PermitID string

// NewPermitID returns a fresh permit id.
func NewPermitID() PermitID { return PermitID(newUUID()) }

// Tenant is a project or client in whose name jobs run, e.g. "website".
type Tenant string

// DefaultTenant owns the jobs of a file that names no tenant.
const DefaultTenant Tenant = "default"

// WorkerKind names an adapter, e.g. "codex", "claude", "opencode", "shell".
type WorkerKind string

// Fence is the number of a claim. It only grows; a write that carries an old
// one comes from a claimant that was given up for dead, and is refused.
type Fence int64

// RunTagVariable is the environment variable that marks every process of a
// run, so that a leftover is found whatever happened to its parents.
const RunTagVariable = "AGENTSCHED_RUN"

// RunTag returns the value of RunTagVariable for one attempt:
// "<instance>/<job>/<attempt>".
func RunTag(instance InstanceID, id ID, attempt int) string {
	return fmt.Sprintf("%s/%s/%d", instance, id, attempt)
}

// FuseTag returns the value of RunTagVariable for the process that ends the runs of a core with
// this tag when the core cannot.
func FuseTag(core string) string { return core + "/fuse" }

// newUUID returns a UUIDv7. The random source of the operating system does
// not fail on the systems that Go supports, hence Must.
func newUUID() string { return uuid.Must(uuid.NewV7()).String() }
