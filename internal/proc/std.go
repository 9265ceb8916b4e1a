package proc

import (
	"fmt"
	"os"
)

// std is the child's side of its three standard files.
type std struct {
	files [3]*os.File
	ours  []*os.File // to close in this process once the child has them
	null  *os.File
}

// openStd opens what the spec asks for and puts our ends of pipes into the tree.
func (t *Tree) openStd(spec Spec) (*std, error) {
	s := &std{null: t.host.null}
	for i, w := range []struct {
		name  string
		given *os.File
		pipe  bool
		ours  **os.File
	}{
		{"stdin", spec.Stdin, spec.PipeStdin, &t.stdin},
		{"stdout", spec.Stdout, spec.PipeStdout, &t.stdout},
		{"stderr", spec.Stderr, spec.PipeStderr, &t.stderr},
	} {
		var err error
		s.files[i], err = s.open(i == 0, w.given, w.pipe, w.ours)
		if err != nil {
			s.closeChildEnds()
			t.ClosePipes()
			return nil, fmt.Errorf("open %s: %w", w.name, err)
		}
	}
	return s, nil
}

func (s *std) open(input bool, given *os.File, pipe bool, ours **os.File) (*os.File, error) {
	if given != nil {
		return given, nil
	}
	if !pipe {
		return s.null, nil
	}
	parent, child, err := openPipe(!input)
	if err != nil {
		return nil, err
	}
	*ours = parent
	s.ours = append(s.ours, child)
	return child, nil
}

func (s *std) closeChildEnds() {
	for _, f := range s.ours {
		_ = f.Close()
	}
}
