package terminal

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// View shows updates as they come.
type View interface {
	// Show takes the next update. It keeps neither u nor what u points to.
	Show(u api.Update)
	// Done shows what is not shown yet and gives the terminal back as it was;
	// the last state stays on screen. It must be called before the program
	// ends, also in haste, and may be called twice. Show after Done does
	// nothing.
	Done()
}

// Job is what a view knows of a job before anything happened.
type Job struct {
	ID     job.ID
	Name   job.Name
	Worker job.WorkerKind
}

// NewJSON returns a view that writes each update as one line of JSON, a few
// milliseconds later together with others that come until then.
func NewJSON(out io.Writer) View {
	v := &jsonView{out: out}
	v.enc = NewEncoder(&v.lines)
	return v
}

type jsonView struct {
	out io.Writer

	mu    sync.Mutex // guards what follows
	lines bytes.Buffer
	enc   *json.Encoder // to lines
	timer *time.Timer   // of the flush to come; nil before the first update
	due   bool          // it runs
	done  bool
}

// flushAfter is how late a line may be, which nobody sees: a write for each
// costs as much as all else about it.
const flushAfter = 5 * time.Millisecond

// maxLines is how many bytes of lines go out at once, about.
const maxLines = 32 << 10

func (v *jsonView) Show(u api.Update) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.done {
		return
	}
	v.enc.Encode(u)
	switch {
	case v.lines.Len() >= maxLines:
		v.flushLocked()
	case v.due:
	case v.timer == nil:
		v.timer, v.due = time.AfterFunc(flushAfter, v.flush), true
	default:
		v.timer.Reset(flushAfter)
		v.due = true
	}
}

func (v *jsonView) flush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.due = false
	v.flushLocked()
}

func (v *jsonView) flushLocked() {
	if v.lines.Len() > 0 {
		v.out.Write(v.lines.Bytes()) // a reader that went away does not concern the jobs
		v.lines.Reset()
	}
}

func (v *jsonView) Done() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = true
	v.flushLocked()
	if v.timer != nil {
		v.timer.Stop()
	}
}
