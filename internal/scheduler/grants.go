package scheduler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// Grants are what people have allowed runs beside what their jobs say. Each is a record in a space of its own:
//
//	grants/TENANT/KIND/ENTRY       of a tenant
//	job/ID/grants/KIND/ENTRY       of a job, or of one attempt of it
//
// A run is told what is stored when it is submitted, and again when that changes.
type Grants struct {
	store queue.Store
	log   zerolog.Logger
	runs  func() []*schedule.Run
	call  func(ctx context.Context, core schedule.CoreID, method string, params, result any) error

	telling sync.Mutex    // held while runs are told, so that each is told the latest last
	changes atomic.Uint64 // counts what was stored
}

// maxRunGrants bounds the grants of a tenant, and of a job.
const maxRunGrants = 256

// grantKey is the key of the only record of a grant's space.
const grantKey = "grant"

func tenantGrants(t job.Tenant) string { return "grants/" + string(t) + "/" }
func jobGrants(id job.ID) string       { return queue.JobSpace(id, "grants/") }

// spaceOf returns the space of a grant.
func spaceOf(g *api.RunGrant) string {
	prefix := tenantGrants(g.Tenant)
	if g.Scope != api.GrantTenant {
		prefix = jobGrants(g.Job)
	}
	entry := g.Entry
	if g.Kind != api.GrantNetwork { // a pattern, which may hold anything
		sum := sha256.Sum256([]byte(entry))
		entry = hex.EncodeToString(sum[:16])
	}
	return prefix + string(g.Kind) + "/" + entry
}

// ruleOf returns what a grant allows of what agents ask for; false if it is none of these.
func ruleOf(g *api.RunGrant) (job.AskRule, bool) {
	r := job.AskRule{Answer: job.AllowAsked}
	switch g.Kind {
	case api.GrantCommand:
		r.Command = g.Entry
	case api.GrantWrite:
		r.Write = g.Entry
	case api.GrantRead:
		r.Read = g.Entry
	case api.GrantHost:
		r.Host = g.Entry
	case api.GrantTool:
		r.Tool = g.Entry
	default:
		return r, false
	}
	return r, true
}

// grantOf returns a grant of what a rule allows.
func grantOf(r *job.AskRule) (api.RunGrantKind, string) {
	switch {
	case r.Command != "":
		return api.GrantCommand, r.Command
	case r.Write != "":
		return api.GrantWrite, r.Write
	case r.Read != "":
		return api.GrantRead, r.Read
	case r.Host != "":
		return api.GrantHost, r.Host
	}
	return api.GrantTool, r.Tool
}

// rules returns what people have allowed for good of what the agent of a run asks for. It is never nil: on the wire that would
// be no news, and not that there are none any more.
func (s *Grants) rules(ctx context.Context, r *schedule.Run) ([]job.AskRule, error) {
	rules := []job.AskRule{}
	if !r.Entry.Spec.Ask.Asks() {
		return rules, nil
	}
	grants, err := s.Of(ctx, &r.Entry, r.Attempt)
	for i := range grants {
		if r, ok := ruleOf(&grants[i]); ok {
			rules = append(rules, r)
		}
	}
	return rules, err
}

// allowRule returns the op that stores what an answer allows for good, and what tells the runs that are under way then.
func (s *Grants) allowRule(ctx context.Context, e *queue.Entry, rule job.AskRule, a *api.QuestionAnswer) ([]queue.Op, func(), error) {
	g := api.RunGrant{Scope: a.Scope, Tenant: e.Spec.Tenant, By: a.By, At: a.At}
	g.Kind, g.Entry = grantOf(&rule)
	prefix := tenantGrants(g.Tenant)
	if g.Scope != api.GrantTenant {
		g.Job, prefix = e.ID, jobGrants(e.ID)
	}
	there, err := s.list(ctx, prefix)
	if err != nil {
		return nil, nil, err
	}
	if len(there) >= maxRunGrants {
		return nil, nil, queue.Refuse("there are %d grants already, as many as may be; revoke some, or write them into the job's ask.rules", len(there))
	}
	value, err := json.Marshal(&g)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a grant: %w", err)
	}
	return []queue.Op{queue.Write{Record: queue.Record{Space: spaceOf(&g), Key: grantKey, Value: value, At: g.At}}},
		func() {
			s.changes.Add(1)
			s.telling.Lock()
			defer s.telling.Unlock()
			s.tellRules(ctx, e, g.Scope)
		}, nil
}

// list returns the grants whose spaces begin with prefix.
func (s *Grants) list(ctx context.Context, prefix string) (list []api.RunGrant, err error) {
	spaces, err := s.store.Spaces(ctx, prefix)
	for _, space := range spaces {
		r, err := s.store.Record(ctx, space, grantKey)
		if errors.Is(err, queue.ErrNotFound) {
			continue // revoked meanwhile
		}
		var g api.RunGrant
		if err == nil {
			err = json.Unmarshal(r.Value, &g)
		}
		if err != nil {
			return nil, fmt.Errorf("read the grant %s: %w", space, err)
		}
		list = append(list, g)
	}
	return list, err
}

// Tenants returns the grants of tenants; of all of them if t is empty.
func (s *Grants) Tenants(ctx context.Context, t job.Tenant) ([]api.RunGrant, error) {
	prefix := "grants/"
	if t != "" {
		prefix = tenantGrants(t)
	}
	return s.list(ctx, prefix)
}

// Of returns the grants that a job has at its attempt of that number.
func (s *Grants) Of(ctx context.Context, e *queue.Entry, attempt int) ([]api.RunGrant, error) {
	own, err := s.list(ctx, jobGrants(e.ID))
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(g api.RunGrant) bool { return g.Scope == api.GrantOnce && g.Attempt != attempt })
	if e.RequeuedFrom != "" || e.Continues != "" {
		chain, err := Chain(ctx, s.store, e)
		if err != nil {
			return nil, err
		}
		for i := range chain {
			letters, err := s.list(ctx, jobGrants(chain[i].ID))
			if err != nil {
				return nil, err
			}
			own = append(own, slices.DeleteFunc(letters, func(g api.RunGrant) bool { return g.Scope == api.GrantOnce })...)
		}
	}
	if saysNone(&e.Spec) {
		return own, nil
	}
	tenants, err := s.list(ctx, tenantGrants(e.Spec.Tenant))
	return append(own, tenants...), err
}

// saysNone reports whether a job says itself that it is to reach no host. What its tenant is allowed does not widen that.
func saysNone(s *job.Spec) bool { return slices.Equal(s.Network, []string{job.NetworkNone}) }

// network returns the entries of a network that grants have, each once.
func network(grants []api.RunGrant) (entries []string) {
	for i := range grants {
		if g := &grants[i]; g.Kind == api.GrantNetwork && !slices.Contains(entries, g.Entry) {
			entries = append(entries, g.Entry)
		}
	}
	return entries
}

// granted returns what a run is told.
func (s *Grants) granted(ctx context.Context, r *schedule.Run) []string {
	if r.Entry.Spec.HasFullNetwork() {
		return nil
	}
	grants, err := s.Of(ctx, &r.Entry, r.Attempt)
	if err != nil {
		log := logOf(s.log, r)
		log.Error().Err(err).Msg("what people have allowed the run cannot be read: it goes on without")
	}
	return network(grants)
}

// Networks returns the entries that the further runs of an ended job would have by its own grants.
func (s *Grants) Networks(ctx context.Context, e *queue.Entry) ([]string, error) {
	grants, err := s.Of(ctx, e, 0)
	return network(slices.DeleteFunc(grants, func(g api.RunGrant) bool { return g.Scope == api.GrantTenant })), err
}

// Allow stores a grant that the job's person has asked for, and has runs that are under way told. The error wraps
// queue.ErrIllegalTransition if it would have no effect, or there are too many.
func (s *Grants) Allow(ctx context.Context, e *queue.Entry, in *api.AllowRun) (api.AllowedRun, error) {
	g := api.RunGrant{
		Kind: api.GrantNetwork, Entry: strings.ToLower(in.Entry), Scope: cmp.Or(in.Scope, api.GrantJob), Tenant: e.Spec.Tenant, By: in.By, At: now(),
	}
	attempt := s.attempt(e)
	switch {
	case e.Spec.HasFullNetwork():
		return api.AllowedRun{}, queue.Refuse("job %s may reach every host already", e.Spec.Name)
	case g.Scope == api.GrantOnce && e.State.Terminal():
		return api.AllowedRun{}, queue.Refuse("job %s has ended and has no further run; allow it for the job, then `scheduler retry` it", e.Spec.Name)
	case g.Scope == api.GrantTenant && saysNone(&e.Spec):
		return api.AllowedRun{}, queue.Refuse("job %s says `network: none`, which a grant of its tenant does not change; allow it for the job", e.Spec.Name)
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	prefix := tenantGrants(g.Tenant)
	if g.Scope != api.GrantTenant {
		g.Job, prefix = e.ID, jobGrants(e.ID)
	}
	if g.Scope == api.GrantOnce {
		g.Attempt = attempt
	}
	there, err := s.list(ctx, prefix)
	if err != nil {
		return api.AllowedRun{}, err
	}
	if i := slices.IndexFunc(there, func(x api.RunGrant) bool {
		return spaceOf(&x) == spaceOf(&g) && (x.Scope != api.GrantOnce || x.Scope == g.Scope && x.Attempt == g.Attempt)
	}); i >= 0 {
		g = there[i] // all of it is allowed already
	} else if len(there) >= maxRunGrants {
		return api.AllowedRun{}, queue.Refuse("there are %d grants already, as many as may be; revoke some, or write them into the job's network", len(there))
	}
	value, err := json.Marshal(&g)
	if err == nil {
		err = s.change(ctx, queue.Write{Record: queue.Record{Space: spaceOf(&g), Key: grantKey, Value: value, At: g.At}})
	}
	if err != nil {
		return api.AllowedRun{}, fmt.Errorf("store the grant: %w", err)
	}
	return api.AllowedRun{Grant: g, Applied: slices.Contains(s.tell(ctx, &g), e.ID)}, nil
}

// Revoke ends a grant: that of a job, or of a tenant if e is nil. Connections that are open go on. The error wraps
// queue.ErrNotFound.
func (s *Grants) Revoke(ctx context.Context, e *queue.Entry, t job.Tenant, kind api.RunGrantKind, entry string) (api.RunGrant, error) {
	s.telling.Lock()
	defer s.telling.Unlock()
	kind = cmp.Or(kind, api.GrantNetwork)
	if kind == api.GrantNetwork {
		entry = strings.ToLower(entry)
	}
	g, whose := api.RunGrant{Kind: kind, Entry: entry, Scope: api.GrantTenant, Tenant: t}, "tenant "+string(t)
	if e != nil {
		g.Scope, g.Tenant, g.Job, whose = api.GrantJob, e.Spec.Tenant, e.ID, "job "+string(e.Spec.Name)
	}
	there, err := s.list(ctx, spaceOf(&g))
	i := slices.IndexFunc(there, func(x api.RunGrant) bool { return x.Entry == g.Entry })
	if err == nil && i < 0 {
		err = fmt.Errorf("grant of %s of %s %s: %w", whose, g.Kind, g.Entry, queue.ErrNotFound)
	}
	if err != nil {
		return g, err
	}
	g = there[i]
	if err := s.change(ctx, queue.Erase{Space: spaceOf(&g), UpTo: grantKey}); err != nil {
		return g, fmt.Errorf("revoke the grant: %w", err)
	}
	if g.Kind != api.GrantNetwork {
		of := &queue.Entry{Spec: job.Spec{Tenant: g.Tenant}}
		if e != nil {
			of = e
		}
		s.tellRules(ctx, of, g.Scope)
		return g, nil
	}
	s.tell(ctx, &g)
	return g, nil
}

// Show returns the grants that the run of a job has which is under way, or the next one, and what its runs were refused.
func (s *Grants) Show(ctx context.Context, e *queue.Entry) ([]api.RunGrant, []api.RefusedHost, error) {
	grants, err := s.Of(ctx, e, s.attempt(e))
	if err != nil {
		return nil, nil, err
	}
	refused, err := s.refused(ctx, e.ID, append(network(grants), e.Spec.Network...))
	return grants, refused, err
}

// attempt returns the number of the attempt of a job that is under way, else of its next one.
func (s *Grants) attempt(e *queue.Entry) int {
	for _, r := range s.runs() {
		if r.Entry.ID == e.ID && r.Attempt > 0 {
			return r.Attempt
		}
	}
	return e.Attempts + 1
}

func (s *Grants) change(ctx context.Context, op queue.Op) error {
	defer s.changes.Add(1)
	return s.store.Apply(ctx, op)
}

// tell has the runs that a grant is for told what they may do now, and returns the jobs of those which a sandbox holds.
// telling is held.
func (s *Grants) tell(ctx context.Context, g *api.RunGrant) (told []job.ID) {
	ctx = context.WithoutCancel(ctx)
	for _, r := range s.runs() {
		if r.Core == 0 || r.Entry.Spec.Tenant != g.Tenant || g.Job != "" && r.Entry.ID != g.Job {
			continue
		}
		if s.tellRun(ctx, r) {
			told = append(told, r.Entry.ID)
		}
	}
	return told
}

// tellTime is how long a core may take to hear of a grant.
const tellTime = 5 * time.Second

// tellRun has a run told what it may do now, and reports whether a sandbox holds it. telling is held.
func (s *Grants) tellRun(ctx context.Context, r *schedule.Run) bool {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	var answer ipc.SetGrantsResult
	err := s.call(ctx, r.Core, ipc.MethodSetGrants, ipc.SetGrants{Job: r.Entry.ID, Attempt: r.Attempt, Granted: s.granted(ctx, r)}, &answer)
	if err != nil {
		log := logOf(s.log, r)
		log.Warn().Err(err).Msg("the core could not be told what people allow the run: it holds from the next attempt on")
	}
	return answer.Applied
}

// submit submits a run with what it is granted. A grant that is stored while the core takes the run may have missed it:
// then the run is told once more.
func (s *Grants) submit(ctx context.Context, r *schedule.Run, submit func(granted []string, rules []job.AskRule) error) error {
	before := s.changes.Load()
	rules, err := s.rules(ctx, r)
	if err != nil {
		log := logOf(s.log, r)
		log.Error().Err(err).Msg("what people have allowed the run's agent cannot be read: it begins without")
	}
	if err := submit(s.granted(ctx, r), rules); err != nil || s.changes.Load() == before {
		return err
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.tellRun(ctx, r)
	if r.Entry.Spec.Ask.Asks() {
		s.tellRulesTo(ctx, r)
	}
	return nil
}

// maxRefused bounds the refused hosts that are told of a job.
const maxRefused = 100

// refused returns the hosts that the runs of a job were refused and that none of the entries names, the latest first.
func (s *Grants) refused(ctx context.Context, id job.ID, allowed []string) ([]api.RefusedHost, error) {
	const page = 1000
	var list []api.RefusedHost // the latest last
	for after := int64(0); ; {
		events, err := s.store.Events(ctx, id, after, page)
		if err != nil {
			return nil, err
		}
		for i := range events {
			c := events[i].Connection
			if after = events[i].Cursor; c == nil || c.Allowed || c.Allow == "" || slices.Contains(allowed, c.Allow) {
				continue
			}
			h := api.RefusedHost{Entry: c.Allow}
			if n := slices.IndexFunc(list, func(x api.RefusedHost) bool { return x.Entry == c.Allow }); n >= 0 {
				h = list[n]
				list = slices.Delete(list, n, n+1)
			}
			h.Reason, h.Attempt, h.Times = c.Reason, events[i].Attempt, h.Times+1
			if list = append(list, h); len(list) > maxRefused {
				list = list[1:]
			}
		}
		if len(events) < page {
			slices.Reverse(list)
			return list, nil
		}
	}
}
