package job

import (
	"slices"
	"strings"
)

// Node is what a job requires of the host that it runs on. All that is given has to hold;
// the zero value is any host.
type Node struct {
	// The name of one node, and no other.
	Name string `json:"name,omitempty" yaml:"name,omitempty" match:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" is:"a name of a node" want:"1 to 64 of a-z A-Z 0-9 and, not first, . - _, such as build-1" otherwise:"any"`
	// The host's operating system.
	OS string `json:"os,omitempty" yaml:"os,omitempty" words:"linux darwin" otherwise:"any"`
	// Its processors, as Go calls them.
	Arch string `json:"arch,omitempty" yaml:"arch,omitempty" words:"386 amd64 arm arm64 loong64 ppc64le riscv64 s390x" otherwise:"any"`
	// Labels of the node, each such as `docker`, whatever its value, or `gpu=a100`.
	Has []string `json:"has,omitempty" yaml:"has,omitempty" match:"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[A-Za-z0-9._:/@+-]{0,128})?$" single:"true" is:"a label" want:"a label such as docker, or one with its value such as gpu=a100" otherwise:"any"`
	// Memory of the node that no other job has asked for: a number with `KiB`, `MiB`, `GiB`, `TiB`.
	Memory Size `json:"memory,omitempty" yaml:"memory,omitempty" min:"1MiB" want:"1MiB or more; leave it out for limits.memory" otherwise:"limits.memory"`
}

// IsZero reports whether any host will do.
func (n *Node) IsZero() bool {
	return n.Name == "" && n.OS == "" && n.Arch == "" && len(n.Has) == 0 && n.Memory == 0
}

// HasLabel reports whether labels have what an entry of Node.Has names.
func HasLabel(labels map[string]string, want string) bool {
	name, value, exact := strings.Cut(want, "=")
	have, is := labels[name]
	return is && (!exact || have == value)
}

// Memory is how much of a host's memory the job asks for; 0: it does not say.
func (s *Spec) Memory() Size {
	if s.Node.Memory > 0 {
		return s.Node.Memory
	}
	return s.Limits.Memory
}

// maxLabels bounds the labels that a job may require.
const maxLabels = 32

func (s *Spec) validateNode(bad func(string, string, ...any)) {
	n := &s.Node
	if len(n.Has) > maxLabels {
		bad("node.has", "has %d labels, at most %d are allowed", len(n.Has), maxLabels)
	}
	for i, label := range n.Has {
		if slices.Index(n.Has, label) < i {
			bad("node.has", "%q is listed twice; remove one", label)
			break
		}
	}
	if n.Memory > 0 && n.Memory < s.Limits.Memory {
		bad("node.memory", "%s is less than limits.memory, %s, which the job may use; give as much or leave it out", n.Memory, s.Limits.Memory)
	}
	if s.Type == External && !n.IsZero() {
		bad("node", "is not for a job of type EXTERNAL, which is run by whoever claims it; leave it out")
	}
}
