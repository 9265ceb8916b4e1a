package e2e

// What the tests of the queue share: `scheduler serve`, clients of its socket,
// and workers that use as much as they are told.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue/sched"
)

// serve starts `scheduler serve` and waits until it answers.
func (b *bench) serve() *run {
	b.t.Helper()
	r := b.start("serve")
	c := b.client()
	b.eventually("serve answers on its socket", func() bool {
		select {
		case <-r.ended:
			r.fatalf("serve ended with %v", r.cmd.ProcessState)
		default:
		}
		st, err := c.Status(b.t.Context())
		return err == nil && st.PID == r.cmd.Process.Pid
	})
	return r
}

// stop is Ctrl-C, which a server takes for what it was told.
func (r *run) stop() {
	r.b.t.Helper()
	r.signal(syscall.SIGINT)
	r.exit(0)
}

// client returns a client of whatever listens on the bench's socket.
func (b *bench) client() *client.Client {
	c := client.New(filepath.Join(b.state, "scheduler.sock"))
	b.t.Cleanup(c.Close)
	return c
}

// kernel makes a call of kernel.sched, which must succeed.
func kernel[R any](b *bench, c *client.Client, method string, params any) (result R) {
	b.t.Helper()
	if err := c.Call(b.t.Context(), method, params, &result); err != nil {
		b.fatalf("%s %s: %v", method, asJSON(b.t, params), err)
	}
	return result
}

// refused wants a call to be refused with a code and a word on why.
func (b *bench) refused(c *client.Client, method string, params any, code sched.Code, word string) {
	b.t.Helper()
	err := c.Call(b.t.Context(), method, params, nil)
	if no, ok := errors.AsType[*api.RPCError](err); !ok || no.Code != int(code) || !strings.Contains(no.Message, word) {
		b.t.Errorf("%s %s: %v (%T), want code %d and a word on %q", method, asJSON(b.t, params), err, err, code, word)
	}
}

// list returns every job that the store has, in the order of their ends; the
// unfinished ones come last.
func (b *bench) list() []api.Job {
	b.t.Helper()
	out, errs, code := b.command("ls", "--all", "--json")
	var list api.Jobs
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		b.fatalf("ls: exit code %d, %v\n%s", code, err, errs)
	}
	slices.SortFunc(list.Jobs, func(x, y api.Job) int {
		switch {
		case x.CompletedAt != nil && y.CompletedAt != nil:
			return x.CompletedAt.Compare(*y.CompletedAt)
		case x.CompletedAt != nil:
			return -1
		case y.CompletedAt != nil:
			return 1
		}
		return inLine(&x, &y)
	})
	return list.Jobs
}

// finished returns what has ended, in that order.
func (b *bench) finished() []api.Job {
	b.t.Helper()
	return slices.DeleteFunc(b.list(), func(e api.Job) bool { return !e.State.Terminal() })
}

// inLine is the order of entries within a tenant, and of all by priority.
func inLine(x, y *api.Job) int {
	return cmp.Or(cmp.Compare(y.Spec.Priority, x.Spec.Priority), x.RunnableAt.Compare(y.RunnableAt), cmp.Compare(x.ID, y.ID))
}

// ends blocks until n jobs of the run have ended.
func (r *run) ends(n int) {
	r.b.t.Helper()
	r.awaitTimes(n, "the end of a job", func(u *api.Update) bool { return u.Kind == api.UpdateJob && u.Entry.Terminal() })
}

// runs blocks until a job of the tenant runs.
func (r *run) runs(tenant job.Tenant) {
	r.b.t.Helper()
	r.await("a job of "+string(tenant)+" runs", func(u *api.Update) bool {
		return u.Tenant == tenant && u.State == job.Running
	})
}

// spender sets up a kind of worker that waits for the file "go" and then uses
// the tokens and the money that its instructions name, see spend.
func (b *bench) spender() {
	b.t.Helper()
	b.kind("spender", until(b.folder("go"))+`
n=${task#*USE }; n=${n%% TOKENS*}; usd=${task#*AND }; usd=${usd%% DOLLARS*}
echo '{"type":"usage","input_tokens":'$n',"cost_usd":'$usd'}'
echo '{"type":"usage","output_tokens":'$n'}'
`+result("spent"))
}

// spend is a job that uses so much: half of the tokens going in, half coming out.
func spend(id string, tokens int, usd float64, more obj) obj {
	return with(on(id, "spender", more), obj{"instructions": fmt.Sprintf("USE %d TOKENS AND %g DOLLARS", tokens/2, usd)})
}

// spenders are n such jobs.
func spenders(prefix string, n, tokens int, usd float64, more obj) []obj {
	jobs := make([]obj, n)
	for i := range jobs {
		jobs[i] = spend(fmt.Sprintf("%s-%03d", prefix, i), tokens, usd, more)
	}
	return jobs
}

// open lets the spenders go.
func (b *bench) open() {
	b.t.Helper()
	b.write(b.folder("go"), "")
}

// tenantsOf returns of whom the jobs are, a letter each: the first of the name.
func tenantsOf(entries []api.Job) string {
	var s strings.Builder
	for _, e := range entries {
		s.WriteByte(e.Spec.Tenant[0])
	}
	return s.String()
}

// part returns the part of the whole that a tenant has.
func part(entries []api.Job, tenant job.Tenant, of func(job.Usage) float64) float64 {
	var own, all float64
	for _, e := range entries {
		all += of(e.Spent)
		if e.Spec.Tenant == tenant {
			own += of(e.Spent)
		}
	}
	return own / all
}

func tokensOf(u job.Usage) float64 { return float64(u.Tokens()) }
func costOf(u job.Usage) float64   { return u.CostUSD }

// each runs f n times at once and waits for all of them.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// reload is SIGHUP with another configuration, until it is in force.
func (r *run) reload(t *testing.T, changes obj) {
	t.Helper()
	before := len(r.stderr.String())
	r.b.write(r.b.configFile(), asJSON(t, with(r.b.config, changes)))
	r.signal(syscall.SIGHUP)
	r.b.eventually("a word on the new configuration", func() bool { return strings.Contains(r.stderr.String()[before:], "reloaded") })
	if said := r.stderr.String()[before:]; strings.Contains(said, "not reloaded") {
		r.fatalf("reload: %s", said)
	}
}
