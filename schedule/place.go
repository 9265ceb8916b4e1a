package schedule

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Placement says which of the hosts that can run a job does.
type Placement string

const (
	// Spread takes the host of whose slots the least part is taken: the default.
	Spread Placement = "spread"
	// Pack takes the host of whose slots the largest part is taken that has room.
	Pack Placement = "pack"
)

// Placements lists them.
func Placements() []Placement { return []Placement{Spread, Pack} }

// sessionWait is how long a job waits for the host that has its session, if that is there
// and has no room. Then it runs elsewhere, with the files of the session or from the start.
const sessionWait = 30 * time.Second

// maxClasses bounds how many classes are found by their key; heads keep their own.
const maxClasses = 1024

// class is what makes jobs equal for the choice of a host: each host can run all of them, or
// none.
type class struct {
	worker job.WorkerKind
	node   job.Node
	memory int64
	level  job.SandboxLevel
	home   bool // they work in folders of the scheduler's own host

	version uint64  // of the list of hosts by which hosts was made
	hosts   []*host // that satisfy it, in the order of the list; where its worker is isolated only if that is all of them
	out     []*host // that satisfy it else, where its worker is isolated for all tenants; none if hosts has them
	full    uint64  // hosts.freed, since which none of them had room
	why     job.Waiting
}

// keyOf returns what is equal for heads of one class.
func keyOf(h *queue.Head) string {
	if h.Node.IsZero() && h.Memory == 0 && h.Sandbox == "" && !isHome(h) {
		return string(h.Worker)
	}
	n, home := &h.Node, ""
	if isHome(h) {
		home = "home"
	}
	parts := append([]string{string(h.Worker), home, n.Name, n.OS, n.Arch, h.Memory.String(), string(h.Sandbox)}, n.Has...)
	return strings.Join(parts, "\n")
}

// isHome reports whether a job works in a folder of the scheduler's own host, or in a repository there: it names one, and
// does not say on which other host that is.
func isHome(h *queue.Head) bool {
	return h.Workspace.OfHost() && h.Node.IsZero()
}

// class returns the class of a head, with its hosts.
func (s *hosts) class(h *head) *class {
	if h.class == nil {
		key := keyOf(&h.Head)
		c := s.classes[key]
		if c == nil {
			if len(s.classes) >= maxClasses {
				clear(s.classes)
			}
			c = &class{worker: h.Worker, node: h.Node, memory: int64(h.Memory), level: h.Sandbox, home: isHome(&h.Head)}
			s.classes[key] = c
		}
		h.class = c
	}
	s.refresh(h.class)
	return h.class
}

// refresh finds the hosts of a class anew if there are others since.
func (s *hosts) refresh(c *class) {
	if c.version == s.version {
		return
	}
	c.version, c.hosts, c.out = s.version, nil, nil
	wants := c.wants()
	for _, h := range s.list {
		switch {
		case slices.ContainsFunc(wants, func(w want) bool { return !w.ok(h) }):
		case h.isOut(c.worker, ""):
			c.out = append(c.out, h)
		default:
			c.hosts = append(c.hosts, h)
		}
	}
	if c.hosts == nil {
		c.hosts, c.out = c.out, nil
	}
}

// all returns the class of jobs that require nothing.
func (s *hosts) all() *class {
	s.refresh(&s.any)
	return &s.any
}

// suits reports whether a host is there that a head may run on, and takes new jobs.
func (s *hosts) suits(h *head) bool {
	return len(s.list) == 0 || slices.ContainsFunc(s.class(h).hosts, func(x *host) bool { return !x.closed() })
}

// suits reports whether a host satisfies the class.
func (c *class) suits(h *host) bool { return slices.Contains(c.hosts, h) }

// want is one thing that a class requires, and how it is said behind "has" and "with".
type want struct {
	says string
	ok   func(*host) bool
}

// wants lists what the class requires that does not change while a host is up.
func (c *class) wants() (list []want) {
	add := func(given bool, says string, ok func(*host) bool) {
		if given {
			list = append(list, want{says, ok})
		}
	}
	n := &c.node
	add(c.home, "its folder", func(h *host) bool { return h.Name == "" })
	add(n.Name != "", "the name "+n.Name, func(h *host) bool { return h.Name == n.Name })
	add(n.OS != "", "os "+n.OS, func(h *host) bool { return h.OS == n.OS })
	add(n.Arch != "", "arch "+n.Arch, func(h *host) bool { return h.Arch == n.Arch })
	for _, label := range n.Has {
		add(true, label, func(h *host) bool { return job.HasLabel(h.Labels, label) })
	}
	add(c.worker != "", string(c.worker)+" logged in", func(h *host) bool { return h.has(c.worker) })
	held := "a sandbox that holds runs as its configuration asks"
	if c.level != "" {
		held = "sandbox level " + string(c.level) + " for jobs"
	}
	add(true, held, func(h *host) bool { return h.holds(c.level) })
	add(c.memory > 0, job.Size(c.memory).String()+" of memory for jobs", func(h *host) bool { return h.Memory == 0 || h.Memory >= c.memory })
	return list
}

// spot is where a head would run.
type spot struct {
	host    *host       // nil: nowhere now
	waiting job.Waiting // for what, then; empty: no core is there at all
	session bool        // it waits for the host that has its session
}

// place returns where a head would run if it were claimed now. Its own host comes first if it
// goes on with a session; then the rules of before, among the hosts that have room, and where its
// worker is not isolated. Where it is so on all of them, the job is refused by one, so that it goes
// on with its next worker, and else is parked until that changes.
func (r *room) place(at time.Time, t job.Tenant, h *head) spot {
	s := &r.cores.hosts
	if len(s.list) == 0 {
		return spot{}
	}
	c, all, alone := s.class(h), r.bounds.Slots, s.alone() != nil
	if own := s.named[h.SessionNode]; h.Resumes && own != nil && c.suits(own) && !own.isOut(h.Worker, t) {
		state := own.stands(c.memory, all, alone)
		if state == hasRoom {
			return spot{host: own}
		}
		if since, waits := r.sessions[h.ID]; !waits || at.Before(since.Add(sessionWait)) {
			return spot{session: true, waiting: job.Waiting{Reason: job.WaitNode, Text: own.title() + ", which has its session, " + c.words(state)}}
		}
	}
	if c.full == s.freed {
		return spot{waiting: c.why}
	}
	var best, out *host // out: where its worker is isolated
	outs := 0
	for _, x := range c.hosts {
		isOut, room := x.isOut(h.Worker, t), x.stands(c.memory, all, alone) == hasRoom
		if isOut {
			outs++
		}
		switch {
		case !room:
		case isOut:
			out = x
		case best == nil || s.before(x, best, h.mirror, all):
			best = x
		}
	}
	for _, x := range c.out {
		if best == nil && out == nil && outs == len(c.hosts) && x.stands(c.memory, all, alone) == hasRoom {
			out = x
		}
	}
	switch {
	case best == nil && outs > 0 && outs == len(c.hosts) && r.parked[h.ID]:
		return spot{waiting: job.Waiting{Reason: job.WaitIsolation, Text: string(h.Worker) + " is isolated on each node that it may run on"}}
	case best == nil && outs == len(c.hosts) && out != nil:
		return spot{host: out}
	case best == nil && outs > 0: // which is so for its tenant
		return spot{waiting: s.nowhere(c, all)}
	case best == nil:
		c.full, c.why = s.freed, s.nowhere(c, all)
		return spot{waiting: c.why}
	}
	return spot{host: best}
}

// before reports whether a is to be taken rather than b, which comes earlier in the list.
func (s *hosts) before(a, b *host, mirror string, all int) bool {
	if mirror != "" && (a.Mirrors != nil || b.Mirrors != nil) {
		_, mine := slices.BinarySearch(a.Mirrors, mirror)
		if _, other := slices.BinarySearch(b.Mirrors, mirror); mine != other {
			return mine
		}
	}
	// The parts of their slots that are taken, both times the product of the slots.
	mine, other := a.flights*b.slots(all), b.flights*a.slots(all)
	if mine != other {
		return (mine < other) != s.pack
	}
	x, y := a.least(), b.least()
	return x != nil && (y == nil || x.flights < y.flights)
}

// awaitSession notes since when a job waits for the host that has its session.
func (r *room) awaitSession(at time.Time, id job.ID) {
	since, waits := r.sessions[id]
	if !waits {
		since = at
		r.sessions[id] = at
	}
	r.sessionAt = earlier(r.sessionAt, since.Add(sessionWait))
}

// nowhere says why no host takes a job of the class now.
func (s *hosts) nowhere(c *class, all int) job.Waiting {
	if len(c.hosts) == 0 {
		return job.Waiting{Reason: job.WaitNode, Text: s.lacks(c)}
	}
	best := cordoned // what may change the soonest
	for _, h := range c.hosts {
		best = min(best, h.stands(c.memory, all, s.alone() != nil))
	}
	w := job.Waiting{Reason: job.WaitNode}
	switch best {
	case isFull:
		w.Reason = job.WaitSlot
	case overloaded:
		w.Reason = job.WaitLoad
	}
	if len(c.hosts) == 1 {
		w.Text = c.hosts[0].title() + " " + c.words(best)
		return w
	}
	which := s.which(c)
	if which == "" && best != short {
		which = "all nodes"
	}
	switch best {
	case isFull:
		w.Text = strings.TrimSuffix("all slots of "+which, " ") + " are taken"
	case overloaded:
		w.Text = which + " are overloaded"
	case short:
		w.Text = strings.Replace(cmp.Or(which, "nodes"), "nodes", "no node", 1) + " has " + job.Size(c.memory).String() + " free"
	case idle:
		w.Text = which + " take no work now"
	case isolated:
		w.Text = which + " are isolated or cordoned"
	case cordoned:
		w.Text = which + " are cordoned"
	}
	return w
}

// lacks says what no host has of all that the class requires.
func (s *hosts) lacks(c *class) string {
	left, said, name := s.list, []string(nil), c.node.Name
	for i, w := range c.wants() {
		rest := slices.DeleteFunc(slices.Clone(left), func(h *host) bool { return !w.ok(h) })
		switch {
		case len(rest) > 0 && len(rest) == len(left):
			continue // it leaves nothing out
		case len(rest) == 0 && name != "" && i == 0:
			return "there is no node " + name
		case len(rest) == 0 && name != "":
			return "node " + name + " does not have " + w.says
		}
		said = append(said, w.says)
		if left = rest; len(left) == 0 {
			break
		}
	}
	return "no node has " + listed(said)
}

// which tells the hosts of the class from the others, such as "nodes with docker"; "" if it
// is all of them.
func (s *hosts) which(c *class) string {
	var said []string
	for _, w := range c.wants() {
		if slices.ContainsFunc(s.list, func(h *host) bool { return !w.ok(h) }) {
			said = append(said, w.says)
		}
	}
	if said == nil {
		return ""
	}
	return "nodes with " + listed(said)
}

// listed joins words as in a sentence.
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// title names a host in a sentence.
func (h *host) title() string {
	if h.Name == "" {
		return "the scheduler's host"
	}
	return "node " + h.Name
}

// words says how a host stands, behind its title.
func (c *class) words(s state) string {
	switch s {
	case isFull:
		return "is full"
	case overloaded:
		return "is overloaded"
	case short:
		return "has less than " + job.Size(c.memory).String() + " free"
	case idle:
		return "takes no work now"
	case isolated:
		return "is isolated"
	case cordoned:
		return "is cordoned"
	}
	return "has room"
}
