package progress

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// View shows updates as they come.
type View interface {
	// Show takes the next update. It keeps neither u nor what u points to.
	Show(u scheduler.Update)
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

// NewJSON returns a view that writes each update as one line of JSON.
func NewJSON(out io.Writer) View { return &jsonView{out: json.NewEncoder(out)} }

type jsonView struct {
	mu   sync.Mutex // guards what follows
	out  *json.Encoder
	done bool
}

func (v *jsonView) Show(u scheduler.Update) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.done {
		v.out.Encode(u) // a reader that went away does not concern the jobs
	}
}

func (v *jsonView) Done() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = true
}
