package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue"
)

// Actions of the audit log that no request stands for.
const (
	tokenCreated      = "token.created"
	certificateIssued = "certificate.issued"
	tokenRevoked      = "token.revoked"
)

// cliDoor is the way by which a command changes the state directory itself.
const cliDoor = "cli"

// unknownName is who changed the state directory while nobody looked.
const unknownName = "unknown"

// holdTime is how long another command may have the log.
const holdTime = 100 * time.Millisecond

// did records what a command has done to the state directory while no scheduler
// was there to record it. It is done all the same: an error is only told.
func (local *local) did(ctx context.Context, dir *statedir.Dir, e audit.Entry) {
	if cfg, err := local.prog.readConfig(local.prog.configOptions()); err != nil || !cfg.Audit.Enabled {
		return
	}
	e.Who = owner()
	err := audit.Once(ctx, dir.Audit(), audit.Options{Wait: holdTime, Redact: redact.New(redact.FromEnviron(local.con.environ)...)}, e)
	if err != nil && !errors.Is(err, audit.ErrHeld) { // a scheduler holds it: it notices by itself
		fmt.Fprintf(local.con.stderr, "scheduler: the change was made, but is not in the audit log: %v\n", err)
	}
}

// submitted records that the user of this command submitted jobs which it runs
// itself. It is done all the same: an error is only told.
func (local *local) submitted(ctx context.Context, dir *statedir.Dir, entries []queue.Entry) {
	if cfg, err := local.prog.readConfig(local.prog.configOptions()); err != nil || !cfg.Audit.Enabled {
		return
	}
	l, err := audit.Open(dir.Audit(), audit.Options{Wait: holdTime, Redact: redact.New(redact.FromEnviron(local.con.environ)...)})
	if err == nil {
		who := owner()
		for i := range entries {
			e := &entries[i]
			one := audit.Entry{Who: who, Action: audit.ActionSubmitted, Job: e.ID, Detail: audit.SubmittedOf(&e.Spec, e.Batch)}
			if i%256 < 255 {
				l.Note(one) // which never waits, and would lose what comes too fast
				continue
			}
			err = errors.Join(err, l.Record(ctx, one))
		}
		err = errors.Join(err, l.Close())
	}
	if err != nil {
		fmt.Fprintf(local.con.stderr, "scheduler: the jobs were submitted, but that is not in the audit log: %v\n", err)
	}
}

// owner is who acts on the state directory itself: nobody else can.
func owner() api.AuditWho {
	return api.AuditWho{Name: userName(), Role: string(access.Operate), Door: cliDoor}
}

// tokensSeen are the tokens that a server knows of, by their ids.
type tokensSeen map[string]access.Token

// note records which tokens were made and revoked since the last look: commands do
// that without asking the server. Who it was is not known: whoever may write the file.
func (seen tokensSeen) note(ctx context.Context, e *engine, first bool) {
	list, err := e.listeners.tokens.List(ctx)
	if err != nil {
		log := e.state.log
		log.Error().Err(err).Msg("look which tokens there are")
		return
	}
	there := map[string]bool{}
	tell := func(action string, t access.Token) {
		if !first {
			e.audit.Note(audit.Entry{Who: api.AuditWho{Name: unknownName, Door: cliDoor}, Action: action, Target: t.Name,
				Detail: map[string]any{"id": t.ID, "role": t.Role}})
		}
	}
	for _, t := range list {
		there[t.ID] = true
		if _, known := seen[t.ID]; !known {
			seen[t.ID] = t
			tell(tokenCreated, t)
		}
	}
	for id, t := range seen {
		if !there[id] {
			delete(seen, id)
			if !t.Expired(time.Now()) {
				tell(tokenRevoked, t)
			}
		}
	}
}
