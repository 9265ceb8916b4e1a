package config

import (
	"reflect"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// Size is a job.Size that a file may also give as a plain number of bytes.
type Size job.Size

// FieldTag says how a file writes a size.
func (Size) FieldTag() reflect.StructTag { return job.Size(0).FieldTag() + ` number:"true"` }

// String returns s as a job.Size does.
func (s Size) String() string { return job.Size(s).String() }

// MarshalText writes s as String does.
func (s Size) MarshalText() ([]byte, error) { return job.Size(s).MarshalText() }

// UnmarshalText reads a whole number of bytes, with a unit or without.
func (s *Size) UnmarshalText(text []byte) error { return (*job.Size)(s).UnmarshalText(text) }

// DecodeNode reads s from a file: a text, or a plain number of bytes.
func (s *Size) DecodeNode(n *strictyaml.Node) {
	if n.IsText() {
		text, ok := n.Text()
		if !ok {
			return
		}
		if err := s.UnmarshalText([]byte(text)); err != nil {
			n.Failf("%v", err)
		}
		return
	}
	var bytes int64
	n.Decode(&bytes)
	if bytes < 0 {
		n.Failf("is %d, want a size such as 2GiB, or 0 for none", bytes)
	}
	*s = Size(bytes)
}
