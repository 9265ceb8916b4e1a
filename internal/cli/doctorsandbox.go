package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// examineSandbox tells how runs are held whose job does not ask for more, and which levels this host has. The levels are
// required by nobody but the configuration.
func examineSandbox(cfg *config.Config, host sandbox.Host) []finding {
	level, least := cfg.Sandbox.Levels()
	best, _ := host.Best()
	if level == job.SandboxStrongest {
		level = agentcore.Strongest(host, least)
	}
	held := finding{What: "sandbox", Status: "ok", Version: string(level)}
	why := host.Can(sandbox.Level(level))
	switch {
	case why != nil && cfg.Sandbox.Level == level:
		held.Status, held.Required = "error", true
		held.Note = fmt.Sprintf("no run starts: the configuration asks for level %s, and this host has no more than %s; %v", level, best, why)
	case why != nil:
		held.Status, held.Required = "error", true
		held.Note = fmt.Sprintf("no run starts: this host has no more than level %s; %v; to let runs do all that their user may: set sandbox.level to none in the configuration", best, why)
	case level == job.SandboxNone && best != sandbox.None:
		held.Status, held.Note = "warning", fmt.Sprintf("a run may do all that its user may, since sandbox.level is none; this host has %s", best)
	case level == job.SandboxNone:
		held.Note = fmt.Sprintf("a run may do all that its user may: %v", host.Standard)
	default:
		held.Note, held.NotHeld = "holds the runs whose job asks for no other level", host.NotHeld(sandbox.Level(level))
	}
	if runtime.GOOS != "linux" {
		return []finding{held}
	}
	standard, strict := missingUnless("sandbox standard", host.Standard), missingUnless("sandbox strict", host.Bubblewrap)
	if host.ABI > 0 {
		standard.Version = fmt.Sprintf("Landlock ABI %d", host.ABI)
	}
	if host.Version != "" {
		strict.Version = "bubblewrap " + host.Version
	}
	strict.Path = host.Bwrap
	return []finding{held, standard, missingUnless("seccomp notification", host.Notify), strict}
}

// missingUnless returns the line of something that nobody requires; err is why it is missing.
func missingUnless(what string, err error) finding {
	if err == nil {
		return finding{What: what, Status: "ok"}
	}
	f := finding{What: what, Status: "missing", Note: err.Error()}
	if problem, ok := errors.AsType[*sandbox.Problem](err); ok && problem.Mend != "" {
		f.Note = problem.What + "; to have it: " + problem.Mend
	}
	return f
}

// printNotHeld lists what runs may do although no grant says so.
func printNotHeld(w io.Writer, findings []finding) {
	for _, f := range findings {
		if len(f.NotHeld) == 0 {
			continue
		}
		fmt.Fprintf(w, "\nnot held at sandbox level %s:\n", f.Version)
		for _, sentence := range f.NotHeld {
			fmt.Fprintf(w, "  %s\n", terminal.Clean(sentence))
		}
	}
}
