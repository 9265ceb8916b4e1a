package schedule_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/schedule"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the answers in testdata; commit them only if you know what caused each change")

const arrow = "        → "

// TestTranscripts plays testdata/*.txt. A line is a time since the beginning and what
// happens then; behind arrows stands what the machine has started after that, and when it
// wants to be woken. "yield" asks who is to give way, "why" what a job waits for.
func TestTranscripts(t *testing.T) {
	playAll(t, "testdata/*.txt", perform)
}

// playAll plays the transcripts that a pattern matches.
func playAll(t *testing.T, pattern string, play func(*testing.T, string) string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			switch {
			case got == string(text):
			case *rewrite:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s differs; got:\n%s", file, got)
			}
		})
	}
}

func perform(t *testing.T, text string) string {
	var out strings.Builder
	p := &player{world: newWorld(t, schedule.Config{Scopes: []job.BatchID{"own", ""}})}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "→") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		at, err := time.ParseDuration(words[0])
		if err != nil || len(words) < 2 || midnight.Add(at).Before(p.now) {
			t.Fatalf("line %q: want a time that does not go back, and what happens: %v", line, err)
		}
		p.line, p.now = line, midnight.Add(at)
		if words[1] == "yield" {
			for _, y := range p.m.Yields(p.now, p.running(words[2:])) {
				fmt.Fprintf(&out, "%s%s gives way to %s\n", arrow, y.ID, y.To)
			}
			continue
		}
		if words[1] == "why" {
			r := p.find(job.ID(words[2]))
			w, _ := p.m.Refuses(p.now, r.lane.Tenant, r.Head, "", true)
			fmt.Fprintln(&out, arrow+w.String())
			continue
		}
		events := p.event(words[1], words[2:])
		for _, s := range p.rest(events...) {
			waited := ""
			if s.Waited > 0 {
				waited = ", its workspace was taken for " + s.Waited.String()
			}
			on := ""
			if s.Node != "" {
				on = " on " + s.Node
			}
			switch {
			case s.Moved():
				on += " with its session of another host, if that was kept"
			case s.Resume() != "":
				on += " with its session"
			}
			fmt.Fprintf(&out, "%sstart %s%s%s\n", arrow, s.Entry.ID, on, waited)
		}
		if wake := p.ready.Wake; !wake.IsZero() {
			fmt.Fprintf(&out, "%swake at %s\n", arrow, wake.Sub(midnight))
		}
	}
	return out.String()
}

// running returns what runs, of which some were asked to stop, cannot, or have often:
// m1=asked m2=stays m3=often. All have begun at once.
func (p *player) running(words []string) (runs []schedule.Candidate) {
	for _, r := range p.inState(job.Dispatched) {
		runs = append(runs, schedule.Candidate{ID: r.ID, Tenant: r.lane.Tenant, Priority: r.lane.Priority,
			Asked: slices.Contains(words, string(r.ID)+"=asked"), Stays: slices.Contains(words, string(r.ID)+"=stays"),
			Uncounted: schedule.MaxYields * strings.Count(strings.Join(words, " "), string(r.ID)+"=often")})
	}
	return runs
}

// player turns the lines of a transcript into events.
type player struct {
	*world
	line  string
	made  int
	hosts []schedule.Core
	cores int // that there ever were
}

// event does what a line says:
//
//	up | up throttled=1 | down       a core takes work, for so many at once; or none
//	host a slots=2 labels=docker,gpu=no kinds=shell memory=4 repos=x levels=standard,none cordoned isolated cores=2 throttled=1
//	lost a                           it is gone
//	pack                             hosts are packed: only as the first line
//	bounds slots=2 codex=1 tenant=1 folder=1
//	add ID tenant=x priority=1 worker=codex in=/a direct alone at=5s until=9s own count=300
//	  on=a has=docker,gpu=no memory=2 session=a else=claude repo=x held=strict    GiB of memory; the host that has its session
//	end ID | back ID at=5s parked    a run has ended; for good, or its job goes back
//	cancel ID
//	over TENANT | within TENANT      its grant is used up, or not
//	isolate SCOPE until=1m | lift
//	hide PATH | show PATH            its real path is not known, or is now
//	drain | stop | start
//	credit TENANT…| weighted TENANT…  the policy is credit, and these have contracts
//	tick
func (p *player) event(verb string, words []string) []schedule.Event {
	named, plain := map[string]string{}, map[string]bool{}
	first := ""
	for i, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			named[key] = value
		} else if i == 0 {
			first = w
		} else {
			plain[w] = true
		}
	}
	number := func(key string) int {
		n, err := strconv.Atoi(named[key])
		if named[key] != "" && err != nil {
			p.Fatalf("line %q: %v", p.line, err)
		}
		return n
	}
	moment := func(key string) time.Time {
		if named[key] == "" {
			return time.Time{}
		}
		d, err := time.ParseDuration(named[key])
		if err != nil {
			p.Fatalf("line %q: %v", p.line, err)
		}
		return midnight.Add(d)
	}
	switch verb {
	case "up":
		return []schedule.Event{schedule.Cores{{ID: 1, Index: 1, Takes: true, Concurrency: number("throttled")}}}
	case "host", "lost":
		h := &schedule.Host{Name: first, OS: "linux", Arch: "amd64", Slots: number("slots"), Memory: int64(number("memory")) << 30, Cordoned: plain["cordoned"], Isolated: plain["isolated"]}
		if kinds := named["kinds"]; kinds != "" {
			for _, k := range strings.Split(kinds, ",") {
				h.Kinds = append(h.Kinds, job.WorkerKind(k))
			}
		}
		if levels := named["levels"]; levels != "" { // the first is that of jobs that name none; "-": no level
			h.Levels = []job.SandboxLevel{}
			for _, l := range strings.Split(strings.TrimPrefix(levels, "-"), ",") {
				if l != "" {
					h.Levels = append(h.Levels, job.SandboxLevel(l))
				}
			}
			h.Sandbox = append(slices.Clone(h.Levels), job.SandboxStandard)[0]
		}
		if named["repos"] != "" {
			for _, repo := range strings.Split(named["repos"], ",") {
				h.Mirrors = append(h.Mirrors, (&job.Workspace{Repo: repo}).Mirror(job.Tenant(named["tenant"])))
			}
			slices.Sort(h.Mirrors)
		}
		if named["out"] != "" { // kinds of workers that are isolated there, or a kind@tenant
			for _, kind := range strings.Split(named["out"], ",") {
				h.Out = append(h.Out, isolation.Scope("worker:"+kind))
			}
		}
		h.Labels = labels(named["labels"])
		if h.Name == "own" {
			h.Name = "" // the scheduler's
		}
		p.hostIs(h, max(number("cores"), 1), schedule.Core{Takes: true, Concurrency: number("throttled")}, verb == "lost")
		return []schedule.Event{schedule.Cores(slices.Clone(p.hosts))}
	case "pack":
		p.world = newWorld(p.TB, schedule.Config{Placement: schedule.Pack})
	case "down":
		return []schedule.Event{schedule.Cores{}}
	case "bounds":
		return []schedule.Event{schedule.Bounds{Slots: number("slots"), Workers: map[job.WorkerKind]int{"codex": number("codex")},
			Limits: ipc.Limits{EachTenant: number("tenant"), EachWorkspace: number("folder")}}}
	case "add":
		for n := range max(number("count"), 1) {
			p.made++
			r := task(p.made, job.Tenant(named["tenant"]), number("priority"))
			r.ID = job.ID(first)
			if named["count"] != "" {
				r.ID += job.ID(fmt.Sprintf("%03d", n+1))
			}
			r.RunnableAt, r.deadline = p.now, moment("until")
			if named["at"] != "" {
				r.RunnableAt = moment("at")
			}
			if named["worker"] != "" {
				r.Worker = job.WorkerKind(named["worker"])
			}
			if named["else"] != "" {
				r.fallback = []job.Choice{{Worker: job.WorkerKind(named["else"])}}
			}
			if r.Workspace.Path = named["in"]; r.Workspace.Path != "" {
				r.Workspace.Isolation = job.Worktree
			}
			if named["has"] != "" {
				r.Node.Has = strings.Split(named["has"], ",")
			}
			r.Sandbox = job.SandboxLevel(named["held"])
			r.Workspace.Repo = named["repo"]
			r.Node.Name, r.Memory = named["on"], job.Size(number("memory"))<<30
			r.SessionNode, r.Resumes = named["session"], named["session"] != ""
			if plain["direct"] {
				r.Workspace.Isolation = job.Direct
			}
			if plain["alone"] {
				r.Type = job.Maintenance
			}
			if plain["own"] {
				r.lane.Batch = "own"
			}
			p.add(r)
		}
		return []schedule.Event{schedule.Changed{}}
	case "end":
		return []schedule.Event{p.end(job.ID(first), true, p.now)}
	case "back":
		at := p.now
		if named["at"] != "" {
			at = moment("at")
		}
		e := p.end(job.ID(first), false, at)
		e.Parked = plain["parked"]
		return []schedule.Event{schedule.Changed{}, e}
	case "cancel":
		r := p.find(job.ID(first))
		r.state = job.Cancelled
		p.touch(r.lane)
		return []schedule.Event{schedule.Changed{}, schedule.Dropped{ID: r.ID}}
	case "over", "within":
		p.over[job.Tenant(first)] = verb == "over"
	case "isolate":
		return []schedule.Event{schedule.Isolations{{Scope: isolation.Scope(first), Until: moment("until")}}}
	case "lift":
		return []schedule.Event{schedule.Isolations{}}
	case "hide", "show":
		p.hidden[first] = verb == "hide"
	case "drain":
		return []schedule.Event{schedule.Draining}
	case "stop":
		return []schedule.Event{schedule.Stopping}
	case "start":
		return []schedule.Event{schedule.Starting}
	case "credit", "weighted":
		c := policy.Config{Name: policy.NameCredit, Tenants: map[job.Tenant]policy.Tenant{}}
		if verb == "weighted" {
			c.Tiers = policy.TiersWeighted
		}
		for _, t := range words {
			c.Tenants[job.Tenant(t)] = policy.Tenant{Contracted: true}
		}
		policy, err := policy.New(c)
		if err != nil {
			p.Fatal(err)
		}
		return []schedule.Event{schedule.UsePolicy{Policy: policy}}
	case "tick":
	default:
		p.Fatalf("line %q: %q is not known here", p.line, verb)
	}
	return []schedule.Event{schedule.Tick{}}
}

// labels reads docker,gpu=no.
func labels(text string) map[string]string {
	all := map[string]string{}
	for _, l := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(l, "=")
		all[key] = value
	}
	return all
}

// hostIs replaces the cores of a host, or takes them away.
func (p *player) hostIs(h *schedule.Host, cores int, like schedule.Core, lost bool) {
	known := slices.ContainsFunc(p.hosts, func(c schedule.Core) bool { return c.Host.Name == h.Name })
	if !known {
		for range cores {
			p.cores++
			like.ID, like.Index, like.Host = schedule.CoreID(p.cores), p.cores, h
			p.hosts = append(p.hosts, like)
		}
	}
	p.hosts = slices.DeleteFunc(p.hosts, func(c schedule.Core) bool { return lost && c.Host.Name == h.Name })
	for i := range p.hosts {
		if c := &p.hosts[i]; c.Host.Name == h.Name {
			c.Host, c.Concurrency = h, like.Concurrency
		}
	}
}
