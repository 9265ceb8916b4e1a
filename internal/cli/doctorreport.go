package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
)

// grantAdvice is what the latest jobs did in report mode that a sandbox would refuse, and the grants for it. Jobs are
// counted by their names, or ids without one.
type grantAdvice struct {
	Level      job.SandboxLevel `json:"level"`      // that the jobs were compared with
	Looked     int              `json:"looked"`     // jobs that were looked at
	Reported   int              `json:"reported"`   // of which in report mode
	Unrecorded int              `json:"unrecorded"` // of which nothing could be recorded
	Wanting    int              `json:"wanting"`    // of which wanted more than they are granted

	Read    []wish       `json:"read"`    // for sandbox.read of the configuration
	Write   []wish       `json:"write"`   // for sandbox.write
	Network []jobNetwork `json:"network"` // for the job files

	Home   []wish `json:"home"`   // lies among the settings of a home, and a run has one of its own
	Broad  []wish `json:"broad"`  // folders that hold too much to be granted
	Hidden []wish `json:"hidden"` // no grant shows it
	Other  []wish `json:"other"`  // calls that no grant allows

	why string // nothing could be recorded
}

// wish is something that jobs wanted, and how many.
type wish struct {
	What string `json:"what"`
	Jobs int    `json:"jobs"`
}

// jobNetwork is which hosts the jobs of a name asked.
type jobNetwork struct {
	Job   string   `json:"job"`
	Jobs  int      `json:"jobs"`
	Hosts []string `json:"hosts"`
}

// maxAdvised is how many of the latest jobs are looked at.
const maxAdvised = 1000

// adviseGrants prints what to grant so that the latest jobs could be held.
func adviseGrants(ctx context.Context, at *target) error {
	cfg, err := at.prog.loadConfig()
	if err != nil {
		return err
	}
	return at.do(func(p *peer) error {
		jobs, err := p.Jobs(ctx, jobQuery{limit: maxAdvised})
		if err != nil {
			return err
		}
		a := adviser{wishes: map[job.Refusal]map[string]bool{}, hosts: map[string]*asked{}}
		for i := range jobs.Jobs {
			j, err := p.Job(ctx, string(jobs.Jobs[i].ID))
			if err != nil {
				return err
			}
			if !a.looksAt(j.Attempts) {
				continue
			}
			for after := int64(0); ; {
				page, err := p.Events(ctx, j.Job.ID, after)
				if err != nil {
					return err
				}
				if len(page) == 0 {
					break
				}
				after = page[len(page)-1].Cursor
				for k := range page {
					if r := page[k].Refusal; r != nil {
						a.add(&j.Job.Spec, string(j.Job.ID), *r)
					}
				}
			}
		}
		advice := a.advice(&cfg.Sandbox)
		return at.con.print(advice, advice.print)
	})
}

// adviser collects what jobs wanted.
type adviser struct {
	grantAdvice
	wishes map[job.Refusal]map[string]bool // to the ids of the jobs
	hosts  map[string]*asked               // by the job's name
}

type asked struct {
	jobs  map[string]bool
	hosts map[string]bool
}

// looksAt notes how a job was run, and says whether its events tell anything.
func (a *adviser) looksAt(attempts []job.Attempt) bool {
	a.Looked++
	reported, denied, unrecorded := false, false, false
	for i := range attempts {
		o := attempts[i].Outcome
		if o == nil || o.Sandbox == nil || !o.Sandbox.Report {
			continue
		}
		h := o.Sandbox
		reported, denied = true, denied || h.Denied > 0
		a.Level = cmp.Or(a.Level, h.Level) // of the latest job
		if h.Unrecorded && len(h.NotHeld) > 0 {
			unrecorded, a.why = true, cmp.Or(a.why, h.NotHeld[len(h.NotHeld)-1])
		}
	}
	switch {
	case denied:
		a.Reported, a.Wanting = a.Reported+1, a.Wanting+1
	case unrecorded:
		a.Unrecorded, a.Reported = a.Unrecorded+1, a.Reported+1
	case reported:
		a.Reported++
	}
	return denied
}

func (a *adviser) add(spec *job.Spec, id string, r job.Refusal) {
	if r.Act == "connect" && strings.Contains(r.Detail, ":") {
		name := cmp.Or(string(spec.Name), id)
		of := a.hosts[name]
		if of == nil {
			of = &asked{jobs: map[string]bool{}, hosts: map[string]bool{}}
			a.hosts[name] = of
		}
		of.jobs[id], of.hosts[r.Detail] = true, true
		for _, host := range spec.Network { // one list replaces the other
			if host != job.NetworkNone {
				of.hosts[host] = true
			}
		}
		return
	}
	if a.wishes[r] == nil {
		a.wishes[r] = map[string]bool{}
	}
	a.wishes[r][id] = true
}

// advice sorts what was collected, and adds what the configuration grants already.
func (a *adviser) advice(now *config.Sandbox) *grantAdvice {
	a.Level = cmp.Or(a.Level, now.Level, job.SandboxStandard)
	read, write := map[string]map[string]bool{}, map[string]map[string]bool{}
	home, broad, hidden, other := map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]map[string]bool{}
	for key, ids := range a.wishes {
		what, into := strings.TrimSpace(key.Act+" "+key.Detail), other
		switch {
		case key.Act != job.RefusedRead && key.Act != job.RefusedWrite:
		case key.Hidden:
			into = hidden
		case key.Broad:
			into = broad
		case strings.Contains(key.Detail, "/."):
			into = home
		case key.Act == job.RefusedWrite:
			what, into = key.Detail, write
		default:
			what, into = key.Detail, read
		}
		join(into, what, ids)
	}
	for _, path := range now.Write {
		join(write, path, nil)
	}
	for _, path := range now.Read {
		join(read, path, nil)
	}
	nest(write)
	nest(read)
	for _, path := range slices.Sorted(maps.Keys(read)) { // what may be written may be read
		cover(read, path, path, write)
	}
	a.Read, a.Write, a.Home, a.Broad, a.Hidden, a.Other = wishes(read), wishes(write), wishes(home), wishes(broad), wishes(hidden), wishes(other)
	a.Network = []jobNetwork{}
	for _, name := range slices.Sorted(maps.Keys(a.hosts)) {
		of := a.hosts[name]
		a.Network = append(a.Network, jobNetwork{Job: name, Jobs: len(of.jobs), Hosts: slices.Sorted(maps.Keys(of.hosts))})
	}
	return &a.grantAdvice
}

func join(into map[string]map[string]bool, what string, ids map[string]bool) {
	if into[what] == nil {
		into[what] = map[string]bool{}
	}
	maps.Copy(into[what], ids)
}

// nest drops what lies below another path of the list, which gets its jobs.
func nest(paths map[string]map[string]bool) {
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		cover(paths, path, filepath.Dir(path), paths)
	}
}

// cover drops a path if the others have it or what it lies below, from above on.
func cover(paths map[string]map[string]bool, path, above string, others map[string]map[string]bool) {
	for ; above != "/"; above = filepath.Dir(above) {
		if ids, ok := others[above]; ok {
			maps.Copy(ids, paths[path])
			delete(paths, path)
			return
		}
	}
}

func wishes(of map[string]map[string]bool) []wish {
	list := []wish{}
	for _, what := range slices.Sorted(maps.Keys(of)) {
		list = append(list, wish{what, len(of[what])})
	}
	return list
}

// print writes the grants as YAML: a document for the configuration, and one for each job. All else is a comment.
func (a *grantAdvice) print(w io.Writer) error {
	var b strings.Builder
	switch {
	case a.Reported == 0:
		fmt.Fprintf(&b, "# Nothing was recorded: of the latest %s none has ended in report mode.\n# With `sandbox: {mode: report}` in the configuration, jobs run as before and what they would be refused is recorded.\n", count(a.Looked, "job"))
	case a.Reported == a.Unrecorded:
		fmt.Fprintf(&b, "# Nothing was recorded of the latest %s in report mode. %s\n", count(a.Reported, "job"), a.why)
	default:
		fmt.Fprintf(&b, "# %d of the latest %s in report mode wanted more than level %s allows.\n", a.Wanting, count(a.Reported, "job"), a.Level)
		if a.Unrecorded > 0 {
			fmt.Fprintf(&b, "# Nothing was recorded of %d of them. %s\n", a.Unrecorded, a.why)
		}
		a.printGrants(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *grantAdvice) printGrants(b *strings.Builder) {
	b.WriteString("# For the configuration, in place of its sandbox.mode, sandbox.read and sandbox.write. Leave out what no run should have.\n")
	fmt.Fprintf(b, "sandbox:\n  level: %s\n", a.Level)
	for _, list := range []struct {
		name   string
		wishes []wish
	}{{"read", a.Read}, {"write", a.Write}} {
		if len(list.wishes) == 0 {
			continue
		}
		fmt.Fprintf(b, "  %s:\n", list.name)
		for _, x := range list.wishes {
			fmt.Fprintf(b, "    - %s%s\n", scalar(x.What), x.count())
		}
	}
	for _, list := range []struct {
		title  string
		wishes []wish
	}{
		{"Settings below a home. A run has a home of its own, so a grant is only of use to a program that names the path in full.", a.Home},
		{"Too broad to be granted: name the folder below that is needed. A run's temporary folder is in TMPDIR.", a.Broad},
		{"Hidden from every run. Logins of models and git stay outside and are used by the scheduler; see secrets and git of the job file for others.", a.Hidden},
		{"Refused whatever is granted; most programs do without.", a.Other},
	} {
		if len(list.wishes) == 0 {
			continue
		}
		fmt.Fprintf(b, "# %s\n", list.title)
		for _, x := range list.wishes {
			fmt.Fprintf(b, "#   %s%s\n", scalar(x.What), x.count())
		}
	}
	for _, n := range a.Network {
		fmt.Fprintf(b, "---\n# For the job %s (%s). Write the names of hosts in place of their addresses, or a preset: %s.\nnetwork:\n",
			scalar(n.Job), count(n.Jobs, "job"), strings.Join(job.NetworkPresets(), ", "))
		for _, host := range n.Hosts {
			fmt.Fprintf(b, "  - %s\n", scalar(host))
		}
	}
}

// count says how many jobs wanted it; nothing of what is granted already.
func (x wish) count() string {
	if x.Jobs == 0 {
		return ""
	}
	return " # " + count(x.Jobs, "job")
}

// plainScalar is text that YAML takes as it stands.
var plainScalar = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/._+@ -]*[A-Za-z0-9/._+@-]$`)

// scalar returns text as YAML in one line of ASCII.
func scalar(text string) string {
	if plainScalar.MatchString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}
