package terminal

import (
	"bytes"
	"io"
	"sync"
)

// Beside returns where other parts of the program may write lines, e.g. their
// log, while v is shown: such that they appear above a live view, which they
// would tear otherwise; for every other view, and after Done, it is w.
func Beside(v View, w io.Writer) io.Writer {
	if live, ok := v.(*liveView); ok {
		return &beside{view: live, w: w}
	}
	return w
}

type beside struct {
	view *liveView
	w    io.Writer

	mu   sync.Mutex // guards what follows
	part []byte     // of a line that has no end yet
}

func (b *beside) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.part = append(b.part, p...)
	for {
		line, rest, whole := bytes.Cut(b.part, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if !b.view.say(string(line)) {
			<-b.view.ended
			all := b.part
			b.part = nil
			_, err := b.w.Write(all)
			return len(p), err
		}
		b.part = rest
	}
}

// say has a line printed above the view; false means that it is too late.
func (v *liveView) say(line string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last {
		return false
	}
	v.keep(notice{text: Clean(line), bare: true})
	return true
}
