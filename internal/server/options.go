package server

import (
	"context"
	"net"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Options set up a Server. Store and Sched are required. A route whose option is nil
// answers 404, unless the comment says otherwise.
type Options struct {
	Store   queue.Store
	Sched   *scheduler.Scheduler
	Log     zerolog.Logger
	Version string
	// Self is what this scheduler is called. Its role, and when it came into it, are not
	// looked at.
	Self api.FleetMember
	// Fleet returns the schedulers that work on the queue of Store. nil means that this
	// one works alone.
	Fleet func(context.Context) (api.Fleet, error)

	// Node answers GET /v1/node, which needs the role node: it takes over the connection, and returns
	// when that is closed. nil means that this scheduler takes no nodes, maybe since it stands by.
	Node http.Handler
	// Nodes are the hosts that work for this scheduler. nil: none does, and none can be commanded.
	Nodes Nodes

	// Evaluator stores evaluations of people.
	Evaluator *eval.Evaluator
	// Triggers returns the triggers with their state.
	Triggers func() []api.Trigger
	// ReadFile turns a job file into a submission. Its errors, unless they wrap the
	// context's, are mistakes of the client and are answered as they are.
	ReadFile func(context.Context, api.JobFile) (api.Submission, error)
	// Parcels keeps folders of submitters.
	Parcels *parcel.Keeper
	// Artifacts returns the folder of an attempt's artifacts.
	Artifacts func(id job.ID, attempt int) string
	// FetchArtifact brings a file of an attempt on another host into the folder of its artifacts, by its name. The
	// error wraps queue.ErrNotFound if it is nowhere. nil means that all are on this host.
	FetchArtifact func(ctx context.Context, id job.ID, attempt int, name string) error
	// Reload applies the changed configuration and says what has changed. Its errors
	// are mistakes in the configuration and are answered as they are.
	Reload func(context.Context) (string, error)
	// Upgrade begins to hand over to a new program. Its errors are answered as they are.
	Upgrade func(context.Context, api.Upgrade) error
	// NewUILink creates a link that logs the client in to the dashboard once. Its
	// errors are answered as they are.
	NewUILink func(ctx context.Context, role string) (api.UILink, error)
	// Workers returns the kinds of worker with their state.
	Workers func(context.Context) []api.Worker
	// Budgets returns the budgets with what is spent. nil means that there are none.
	Budgets func(context.Context) []api.Budget
	// Domains returns those that jobs may name. nil allows any.
	Domains func() []string
	// Bounds limits submissions. nil leaves only the store's limits.
	Bounds func() queue.Bounds
	// MaxAtOnce returns how many jobs may run at once. nil leaves it out of the overview.
	MaxAtOnce func() int
	// Ready returns why the scheduler does not accept jobs. nil means that it always does.
	Ready func() error

	// Me, Metrics and Login answer GET /v1/me and /metrics, which need the role read,
	// and GET /login, which everybody may ask for.
	Me, Login, Metrics http.Handler

	// WrongLink is told of each request with a one-time link that opens nothing. Its error, which is like Authorize's, is
	// answered instead of the page that says so. nil: nobody is told.
	WrongLink func(*http.Request) error
	// LinkUsed is told of each request that answers by a one-time link, for the audit log: about which job, under which name,
	// and what the answer is, as JSON. nil: nobody is told.
	LinkUsed func(r *http.Request, id job.ID, by, is string)

	// MCP returns what answers /mcp, of whom needs the role read. It asks routes for what it does, each as the client
	// whose request it answers; ending returns what is closed when the Serve that a request came through is to end.
	MCP func(routes http.Handler, ending func(context.Context) <-chan struct{}) http.Handler

	// Authorize decides whether a request may do what needs a role: read, submit or
	// operate. It is called for each request of a route that is not public, before
	// the body is read. An error that has a method Problem() api.Problem, and
	// maybe Header() http.Header, is answered with that. nil allows everything.
	Authorize func(ctx context.Context, r *http.Request, role string) error
	// Principal names the client: idempotency keys of two principals are independent,
	// and each has its share of the streams. nil means that all are one.
	Principal func(context.Context) string
	// Who returns the name that an approval or a rejection is recorded under, whatever
	// the body says; "", and nil, leave it to the body.
	Who func(context.Context) string
	// Wrap is put around all routes, e.g. to identify the client.
	Wrap func(http.Handler) http.Handler
	// ConnContext is http.Server's, of every connection.
	ConnContext func(context.Context, net.Conn) context.Context

	MaxListeners int   // of streams at once, a quarter of them for one principal; 0 means 256
	MaxBody      int64 // of a submission, in bytes; 0 means 64 MiB
}

// Defaults of Options.
const (
	defaultListeners = 256
	defaultBody      = 64 << 20
)
