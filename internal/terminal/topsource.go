package terminal

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// TopSource is the scheduler that is looked at. Its methods may be called from any
// goroutine; each ends soon after its context.
type TopSource interface {
	// Look returns how everything stands now.
	Look(ctx context.Context) (TopPicture, error)
	// Watch passes on what changes, until the context ends or the connection
	// breaks. see is called by one goroutine at a time and does not wait.
	Watch(ctx context.Context, see func(api.Update)) error
	// Events returns at most limit events of a job behind the cursor, the oldest
	// first.
	Events(ctx context.Context, id job.ID, after int64, limit int) ([]api.Event, error)

	Cancel(ctx context.Context, id job.ID) error
	// Answer approves or rejects what a job waits for; a rejection has a comment.
	Answer(ctx context.Context, id job.ID, approve bool, comment string) error
	// AnswerQuestion answers what the agent of a job asks.
	AnswerQuestion(ctx context.Context, id job.ID, number int, in api.AnswerQuestion) error
	// Attach takes part in the conversation of a job, on the terminal, until the person leaves.
	Attach(ctx context.Context, id job.ID) error
	// Pause lets nothing new begin; Resume undoes it.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// TopPicture is the state of a scheduler at one time.
type TopPicture struct {
	Overview api.Overview
	Workers  []api.Worker
	// Jobs are those that have not ended, or the first of them; Total is how many
	// there are.
	Jobs  []api.Job
	Total int
	// Questions are those of agents that can be answered, the oldest first.
	Questions []api.Question
}

// TopOptions of a view; the zero value works.
type TopOptions struct {
	Colour bool
	Name   string           // of what is looked at, for the header, e.g. a URL; "" none
	Every  time.Duration    // between two looks; 0: 2 s
	Now    func() time.Time // nil: time.Now
	Zone   *time.Location   // of times; nil: the local one
}

func (o TopOptions) withDefaults() TopOptions {
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Zone == nil {
		o.Zone = time.Local
	}
	return o
}
