package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// finding is one line of the doctor's report.
type finding struct {
	What     string `json:"what"`
	Status   string `json:"status"` // ok, missing, warning, error
	Version  string `json:"version,omitempty"`
	Path     string `json:"path,omitempty"`
	Note     string `json:"note,omitempty"` // what to do, or what it means
	Required bool   `json:"required,omitempty"`
	Mend     string `json:"mend,omitempty"` // of a level of the sandbox that is missing: what mends it, such as a command
	// NotHeld are, of the level at which runs are held, sentences on what they may do although no grant says so.
	NotHeld []string `json:"not_held,omitempty"`
	// Missed are sentences on what programs miss at that level although it would do no harm.
	Missed []string `json:"missed,omitempty"`
}

func doctorCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	var grants, fix bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what is installed, what is missing and how to get it", Args: cobra.NoArgs,
		Long: `Tell what is installed, in which version, what is missing and how to get it.

--fix offers at a terminal to run what mends the sandbox, where that is one command, and asks whether
runs are allowed without one on a host that cannot hold them; yes is written into the configuration.

With --server it examines the way to the scheduler there instead, from this host: its name, the
connection, the certificate, versions, clocks, and what the token may do. $AGENTSCHED_SERVER alone does
not ask for that. For a node's token it tells whether a node would be taken, and disturbs none.

Exit code 1 if something is missing that every job needs.`,
		Example: "  scheduler doctor\n  scheduler doctor --fix\n  scheduler doctor --server https://build.example:7433 --token-file t --ca ca.crt\n  scheduler doctor --json | jq '.[] | select(.status != \"ok\")'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if grants {
				return adviseGrants(cmd.Context(), &target{con: con, prog: prog, local: local})
			}
			if fix {
				return local.fix(cmd.Context())
			}
			remote := cmd.Flags().Changed("server")
			var findings []finding
			var err error
			if remote {
				findings, err = at.examineServers(cmd.Context())
			} else {
				findings, err = examine(cmd.Context(), con, prog, local)
			}
			if err != nil {
				return err
			}
			err = con.print(findings, func(w io.Writer) error {
				err := table(w, "WHAT\tSTATUS\tVERSION\tPATH\tNOTE", func(w io.Writer) {
					for _, f := range findings {
						if isLevel(&f) {
							continue
						}
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.What, f.Status, f.Version, f.Path, f.Note)
					}
				})
				if remote {
					return err
				}
				err = errors.Join(err, printLevels(w, findings))
				printNotHeld(w, findings)
				return err
			})
			for _, f := range findings {
				if f.Required && f.Status != "ok" && !(remote && f.Status == "warning") {
					return &exitError{code: exitFailed, err: err}
				}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "offer what mends the sandbox of this host, and ask whether runs are allowed without")
	cmd.Flags().BoolVar(&grants, "sandbox", false, "print instead what the latest jobs did in report mode that the sandbox would refuse, as grants for the configuration and the job files")
	cmd.MarkFlagsMutuallyExclusive("fix", "sandbox")
	return cmd
}

// versionTime is how long a program may take to print its version.
const versionTime = 20 * time.Second

func examine(ctx context.Context, con *console, prog *program, local *local) ([]finding, error) {
	cfg, err := prog.loadConfig()
	if err != nil {
		return nil, err
	}
	findings := []finding{
		{What: "scheduler", Status: "ok", Version: prog.version, Path: selfPath()},
		prog.examineCore(),
		examineProgram(ctx, "git", true, "worktrees and patches need it: install it with the system's package manager"),
		local.examineState(),
	}
	findings = append(findings, examinePermits(&cfg))
	if cfg.Fleet.Artifacts.S3 != nil {
		findings = append(findings, examineBucket(ctx, &cfg, con.getenv))
	}
	findings = append(findings, examineSandbox(&cfg, prog.host(ctx))...) // before there is a proc.Host
	findings = append(findings, examineCgroup(&cfg)...)
	for _, name := range prog.workerKinds(&cfg) {
		kind := job.WorkerKind(name)
		settings := cfg.Workers[kind]
		adapter := settings.Adapter
		if adapter == "" {
			adapter = name
		}
		findings = append(findings, examineWorker(ctx, kind, prog.adapters[adapter], prog.packages().Package(kind), settings, con.getenv))
	}
	findings = append(findings, examineProgram(ctx, "npm", false, "only to install the agents' CLIs: get Node.js 20 or newer"))
	return findings, nil
}

func selfPath() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

func (prog *program) examineCore() finding {
	f := finding{What: "agentcore", Status: "ok", Required: true}
	command, err := prog.coreProgram()
	switch {
	case err != nil:
		f.Status, f.Note = "error", err.Error()
	case len(command) > 1:
		f.Path, f.Note = command[0], "this program itself runs as the core"
	default:
		f.Path = command[0]
	}
	return f
}

func examineProgram(ctx context.Context, name string, required bool, hint string) finding {
	f := finding{What: name, Required: required}
	path, err := exec.LookPath(name)
	if err != nil {
		f.Status, f.Note = "missing", hint
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		f.Status, f.Path, f.Note = "error", path, err.Error()
		return f
	}
	f.Status, f.Path, f.Version = "ok", path, strings.TrimPrefix(firstLine(string(out)), name+" version ")
	return f
}

// notLoggedIn begins the note on a worker without credentials.
const notLoggedIn = "installed, not logged in: "

func examineWorker(ctx context.Context, kind job.WorkerKind, a worker.Adapter, tested worker.Package, s job.WorkerSettings, getenv func(string) string) finding {
	f := finding{What: "worker " + string(kind)}
	path, err := a.Locate(s)
	var missing *worker.NotInstalledError
	switch {
	case errors.As(err, &missing):
		f.Status, f.Note = "missing", "install it with: "+missing.Hint
		if tested.Version != "" {
			f.Note += ", or: scheduler install-workers " + string(kind)
		}
		return f
	case err != nil:
		f.Status, f.Note = "error", err.Error()
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	f.Status, f.Path = "ok", path
	if f.Version, err = a.Version(ctx, path); err != nil {
		f.Status, f.Note = "error", err.Error()
		return f
	}
	if tested.Version != "" {
		f.Note = "tested with version " + tested.Version
		if tested.Oldest != tested.Version {
			f.Note = "tested with versions " + tested.Oldest + " to " + tested.Version
		}
	}
	switch newer, old := agentcli.Judge(tested, f.Version); {
	case old != nil:
		f.Status, f.Note = "error", old.Message+"; "+old.Hint
		return f
	case newer != "":
		f.Status = "warning"
	}
	if c, ok := a.(worker.Credentialed); ok {
		if todo := c.Credentials(s, getenv); todo != "" {
			f.Status, f.Note = "warning", strings.TrimPrefix(f.Note+"; ", "; ")+notLoggedIn+todo
		}
	}
	return f
}

// examineState looks at the state directory without making it.
func (local *local) examineState() finding {
	f := finding{What: "state directory", Status: "ok", Required: true}
	path, err := local.statePath()
	if err != nil {
		f.Status, f.Note = "error", err.Error()
		return f
	}
	f.Path = path
	dir, err := statedir.OpenExisting(path)
	if errors.Is(err, os.ErrNotExist) {
		f.Note = "not there yet; the first run makes it"
		return f
	}
	if err != nil {
		f.Status, f.Note = "error", err.Error()
		return f
	}
	lock, err := dir.Lock()
	var locked *statedir.LockedError
	switch {
	case errors.As(err, &locked):
		f.Note = fmt.Sprintf("a scheduler is running on it (pid %d)", locked.PID)
	case err != nil:
		f.Status, f.Note = "error", err.Error()
	default:
		lock.Release()
	}
	return f
}

// examinePermits tells what becomes of runs whose scheduler stands still.
func examinePermits(cfg *config.Config) finding {
	f := finding{What: "permits", Status: "ok"}
	if v := cfg.Heartbeat.PermitValidity; v > 0 {
		f.Note = fmt.Sprintf("lapse %s after a heartbeat: runs of a scheduler that stands still are stopped then", v)
	} else {
		f.Status, f.Note = "warning", "do not lapse: runs of a scheduler that stands still go on; set heartbeat.permit_validity"
	}
	return f
}

// examineCgroup tells whether runs get a cgroup of their own, and which limits can
// be enforced on them.
func examineCgroup(cfg *config.Config) []finding {
	f, l := finding{What: "cgroup v2", Status: "ok"}, finding{What: "limits of runs", Status: "ok"}
	host, err := proc.NewHost(proc.Config{Tag: job.RunTagVariable, Cgroup: "agentsched-doctor", Log: zerolog.Nop()})
	if err != nil {
		f.Status, f.Note = "error", err.Error()
		return []finding{f}
	}
	defer host.Close()
	if f.Path = host.Cgroup(); f.Path == "" {
		f.Status, f.Note = "warning", "not writable here: runs are ended by ancestry, tag and an inherited limit, from which one that no sandbox holds can hide"
	}
	enforced, why := host.Enforces()
	l.Note = fmt.Sprintf("each %s; together %s", resourcesText(cfg.Limits.Each()), resourcesText(cfg.Limits.Total))
	if why != nil {
		l.Status = "warning"
		l.Note += fmt.Sprintf("; enforced: %s; %s. A service with Delegate=yes has what is needed, and so has: systemd-run --user --scope -p Delegate=yes scheduler …",
			cmp.Or(strings.Join(enforced, ", "), "none"), strings.ReplaceAll(why.Error(), "\n", "; "))
	}
	return []finding{f, l}
}

// resourcesText names what may be used.
func resourcesText(r config.Resources) string {
	memory, processes, cpu := "any memory", "any number of processes", "any CPU"
	if r.Memory > 0 {
		memory = proc.Bytes(int64(r.Memory)) + " of memory"
	}
	if r.Processes > 0 {
		processes = fmt.Sprintf("%d processes", r.Processes)
	}
	if r.CPU > 0 {
		cpu = fmt.Sprintf("%g CPUs", r.CPU)
	}
	return strings.Join([]string{memory, processes, cpu}, ", ")
}
