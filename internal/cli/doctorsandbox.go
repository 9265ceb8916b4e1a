package cli

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// examineSandbox tells how runs are held whose job does not ask for more, and which levels this host has. The levels are
// required by nobody but the configuration.
func examineSandbox(cfg *config.Config, host sandbox.Host) []finding {
	if !cfg.Sandbox.Audit {
		host.Audit = sandbox.ErrAuditOff
	}
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
		held.Note = fmt.Sprintf("no run starts: this host has no more than level %s; %v; to let runs do all that their user may: `scheduler doctor --fix` asks, or set sandbox.level to none in the configuration", best, why)
	case level == job.SandboxNone && best != sandbox.None:
		held.Status, held.Note = "warning", fmt.Sprintf("a run may do all that its user may, since sandbox.level is none; this host has %s", best)
	case level == job.SandboxNone:
		held.Note = fmt.Sprintf("a run may do all that its user may: %v", host.Standard)
	default:
		held.Note, held.NotHeld = "holds the runs whose job asks for no other level", host.NotHeld(sandbox.Level(level))
	}
	if level == job.SandboxStandard && why == nil {
		held.Missed = host.Missing()
	}
	standard, strict := examineLevel(sandbox.Standard, host), examineLevel(sandbox.Strict, host)
	if host.ABI > 0 {
		standard.Version = fmt.Sprintf("Landlock ABI %d", host.ABI)
	}
	if host.Version != "" {
		strict.Version = "bubblewrap " + host.Version
	}
	strict.Path = host.Bwrap
	findings := []finding{held, strict, standard, {What: levelPrefix + string(sandbox.None), Status: "ok"}}
	if runtime.GOOS != "linux" {
		return findings
	}
	return append(findings, examineTelling("seccomp notification", host.Notify), examineTelling("audit of files", host.Audit))
}

// examineTelling says whether the host tells of what runs are refused, else why not. Nobody requires it.
func examineTelling(what string, err error) finding {
	f := finding{What: what, Status: "ok"}
	if err != nil {
		f.Status = "missing"
		if f.Note, f.Mend = problemOf(err); f.Mend != "" {
			f.Note += "; to have it: " + f.Mend
		}
	}
	return f
}

// levelPrefix begins the name of a level among the findings.
const levelPrefix = "sandbox "

func isLevel(f *finding) bool { return strings.HasPrefix(f.What, levelPrefix) }

// examineLevel says whether a host has a level, else why not and what mends it. Nobody requires it.
func examineLevel(level sandbox.Level, host sandbox.Host) finding {
	f := finding{What: levelPrefix + string(level), Status: "ok"}
	if err := host.Can(level); err != nil {
		f.Status = "missing"
		f.Note, f.Mend = problemOf(err)
	}
	return f
}

// printLevels lists which levels this host has.
func printLevels(w io.Writer, findings []finding) error {
	fmt.Fprintln(w)
	return table(w, "SANDBOX LEVEL\tHERE\tVERSION\tWHY NOT\tTO HAVE IT", func(w io.Writer) {
		for i := range findings {
			if f := &findings[i]; isLevel(f) {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", strings.TrimPrefix(f.What, levelPrefix), map[string]string{"ok": "yes", "missing": "no"}[f.Status], f.Version,
					terminal.Clean(f.Note), terminal.Clean(f.Mend))
			}
		}
	})
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
		if len(f.Missed) > 0 {
			fmt.Fprintf(w, "\nwhat programs miss at sandbox level %s:\n", f.Version)
		}
		for _, sentence := range f.Missed {
			fmt.Fprintf(w, "  %s\n", terminal.Clean(sentence))
		}
	}
}
