package server

import (
	"context"
	"net"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Options set up a Server. Store and Sched are needed. Of the others, one that is
// nil has the routes that rest on it answer 404, unless its comment says otherwise.
type Options struct {
	Store   queue.Store
	Sched   *scheduler.Scheduler
	Log     zerolog.Logger
	Version string

	// Evaluator takes what people say of jobs.
	Evaluator *eval.Evaluator
	// Triggers tells how the triggers are doing.
	Triggers func() []api.Trigger
	// ReadFile turns a job file into a submission. Its errors are the sender's
	// mistakes, told as they are, unless they wrap the context's.
	ReadFile func(context.Context, api.JobFile) (api.Submission, error)
	// Artifacts is the folder that the artifacts of an attempt lie in.
	Artifacts func(id job.ID, attempt int) string
	// Reload puts the changed configuration in force and says what has changed. Its
	// errors are mistakes in the configuration, told as they are.
	Reload func(context.Context) (string, error)
	// Upgrade begins to hand over to a new program. Its errors are told as they are.
	Upgrade func(context.Context, api.Upgrade) error
	// NewUILink returns a link that logs in to the dashboard once, for who asks. Its
	// errors are told as they are.
	NewUILink func(ctx context.Context, role string) (api.UILink, error)
	// Workers tells how each kind of worker stands.
	Workers func(context.Context) []api.Worker
	// Budgets tells how the windows of money stand. nil: there are none.
	Budgets func(context.Context) []api.Budget
	// Domains are those that jobs may name. nil: any.
	Domains func() []string
	// Bounds are how much a submission may hold. nil: only the store's are.
	Bounds func() queue.Bounds
	// MaxAtOnce is how many jobs may run at once. nil: it is not told.
	MaxAtOnce func() int
	// Ready says why the scheduler is not ready for jobs. nil: it always is.
	Ready func() error

	// Me, Login, Metrics and Dashboard answer GET /v1/me and /metrics, which need
	// the role read, and GET /login, / and /assets/, which everybody may ask for.
	Me, Login, Metrics, Dashboard http.Handler

	// Authorize says whether a request may do what needs a role: read, submit or
	// operate. It is asked for each request of a route that is not public, before
	// its body is read. An error that has a method Problem() api.Problem, and
	// maybe Header() http.Header, is answered with that. nil: all may do all.
	Authorize func(ctx context.Context, r *http.Request, role string) error
	// Principal names who asks: idempotency keys of one do not meet those of
	// another. nil: all are one.
	Principal func(context.Context) string
	// Who is whose answer an approval or a rejection is, whatever its body says; ""
	// leaves it to that. nil: always.
	Who func(context.Context) string
	// Wrap is put around all routes, e.g. to find out who asks.
	Wrap func(http.Handler) http.Handler
	// ConnContext is http.Server's, of every connection.
	ConnContext func(context.Context, net.Conn) context.Context

	MaxListeners int   // to streams, at once, a quarter of them for one principal; 0: 256
	MaxBody      int64 // of a submission, in bytes; 0: 64 MiB
}

// Defaults of Options.
const (
	defaultListeners = 256
	defaultBody      = 64 << 20
)
