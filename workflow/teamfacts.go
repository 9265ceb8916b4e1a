package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// TeamFacts are what is durable about the members of a workflow's teams.
type TeamFacts struct {
	// Runs are all that there are of each member job, in any order: run 0 is the
	// job that was submitted, run k the one called job.RestartName(NAME, k).
	Runs map[job.Name][]MemberRun
	// Log is every Incident that was noted, in the order of N.
	Log []Incident
}

// MemberRun is a member job, or one that does it again.
type MemberRun struct {
	Generation int  // 0, 1, 2, …
	Exit       Exit // ExitAlive until it has ended for good, its own attempts all used
	EndedAt    time.Time
}

// Exit is how a member ended: the exit reason of an Erlang process.
type Exit string

const (
	// ExitAlive: it has not ended. It may be held, queued, run, or wait for a person.
	ExitAlive Exit = ""
	// ExitNormal is OTP's `normal`: a permanent member is restarted.
	ExitNormal Exit = "normal"
	// ExitShutdown is OTP's `shutdown`, of a team that gave up: a permanent member is
	// restarted, a transient one is not.
	ExitShutdown Exit = "shutdown"
	// ExitAbnormal is any other reason: permanent and transient members are restarted.
	ExitAbnormal Exit = "abnormal"
	// ExitWithdrawn is what OTP's terminate_child/2 leaves: somebody, not the member,
	// decided that it ends. It is not restarted on its own account, whatever its
	// type, but is when its siblings' strategy says so.
	ExitWithdrawn Exit = "withdrawn"
)

// ExitOf returns what the end of a queue entry is to its team. exit is looked at
// for a completed entry only.
func ExitOf(state job.EntryState, exit job.ExitKind) Exit {
	switch {
	case !state.Terminal():
		return ExitAlive
	case state == job.Completed && exit == job.ExitSucceeded:
		return ExitNormal
	case state == job.Cancelled, state == job.Completed && exit == job.ExitCancelled:
		return ExitWithdrawn
	}
	return ExitAbnormal // failed, or expired
}

// Incident is a decision that has to be durable before it is acted upon: a member
// ended in a way that calls for a restart. What follows is in the facts from then
// on, so that a crash in the middle loses nothing and counts nothing twice.
type Incident struct {
	N      int      `json:"n"` // 1, 2, 3, … within the workflow
	Team   job.Name `json:"team"`
	Member job.Name `json:"member"` // the job or team of it that ended
	// At is when that ended; never before the team's incident before.
	At time.Time `json:"at"`
	// Starts are the generations to start once all that are older have ended: of
	// all jobs that are restarted. None if the team gives up.
	Starts map[job.Name]int `json:"starts,omitempty"`
	// GivesUp is set if it is one restart too many: the team stops all its members
	// and has failed.
	GivesUp bool `json:"gives_up,omitempty"`
}

// Key orders incidents by N, as the key of a record of the journal.
func (i Incident) Key() string { return fmt.Sprintf("%012d", i.N) }

// String says in one line what was decided, e.g. "fetch has ended: the team
// analysts restarts fetch+1, store+1".
func (i Incident) String() string {
	if i.GivesUp {
		return fmt.Sprintf("%s has ended: the team %s gives up", i.Member, i.Team)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(i.Starts)) {
		names = append(names, string(MemberName(name, i.Starts[name])))
	}
	return fmt.Sprintf("%s has ended: the team %s restarts %s", i.Member, i.Team, strings.Join(names, ", "))
}

// TeamAction is what is to be done, one of the types below. They are carried out in
// the order given; whatever they change, ask again.
type TeamAction interface{ action() }

// NoteIncident stores an Incident. It is durable before any action after it is begun.
type NoteIncident struct{ Incident Incident }

// StopMember ends a run: one that waits at once, one that runs by asking it for a
// checkpoint and cancelling it after Within. It is given again and again until
// that has ended, so that asking twice must do no harm.
type StopMember struct {
	Team       job.Name // that wants it
	Job        job.Name
	Generation int
	Within     job.Duration
}

// RestartMember adds a run: from then on it may run.
type RestartMember struct {
	Team       job.Name // that wants it
	Job        job.Name
	Generation int
}

// FailTeam says that a team that is a member of no other gave up and that all its
// members have ended. It is said whenever it is asked.
type FailTeam struct {
	Team job.Name
	Why  string
}

// TeamDone says that a team that is a member of no other has ended: no member runs or
// is to be restarted. It is said whenever it is asked.
type TeamDone struct{ Team job.Name }

func (NoteIncident) action()  {}
func (StopMember) action()    {}
func (RestartMember) action() {}
func (FailTeam) action()      {}
func (TeamDone) action()      {}

// Name is what the run is called in its batch.
func (s StopMember) Name() job.Name { return MemberName(s.Job, s.Generation) }

// Name is what the run is to be called in its batch.
func (r RestartMember) Name() job.Name { return MemberName(r.Job, r.Generation) }

// MemberName returns the name of a generation of a job, which is the job's own for 0.
func MemberName(name job.Name, generation int) job.Name {
	if generation == 0 {
		return name
	}
	return job.RestartName(name, generation)
}
