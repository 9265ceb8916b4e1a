package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// packages are the workers' programs that can be installed.
func (prog *program) packages() agentcli.Catalog { return agentcli.CatalogOf(prog.adapters) }

func installCommand(con *console, prog *program) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "install-workers [WORKER...]", Short: "Install the agents' CLIs, at the versions that this program is tested with, from npm",
		Long: `Install the agents' CLIs from npm, at the versions that this program is tested with, into a
folder of their own. Nothing is installed globally, and what is there already is left alone.
What npm delivers must have the hashes that this program knows. No package runs a script, but for
those of claude and opencode that link their native program, without the network and with a
minimal environment. Those in the default folder are used wherever neither PATH nor the configuration has another.`,
		Example: "  scheduler install-workers\n  scheduler install-workers codex --dir /opt/agents",
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds := prog.packages().Kinds()
			if len(args) > 0 {
				var chosen []job.WorkerKind
				for _, arg := range args {
					if kind := job.WorkerKind(arg); slices.Contains(kinds, kind) {
						chosen = append(chosen, kind)
						continue
					}
					return usage(fmt.Errorf("worker %q is not installed from npm: use one of %s", arg, strings.Trim(fmt.Sprint(kinds), "[]")))
				}
				kinds = chosen
			}
			if dir == "" {
				var err error
				if dir, err = agentcli.CacheDir(); err != nil {
					return usage(err)
				}
			}
			installed, err := prog.packages().Ensure(cmd.Context(), dir, kinds, func(line string) { fmt.Fprintln(con.stderr, line) })
			if err != nil {
				return failure(err)
			}
			if con.json {
				out := map[job.WorkerKind][]string{}
				for _, kind := range kinds {
					out[kind] = []string{installed[kind]}
				}
				return failure(writeJSON(con.stdout, map[string]any{"commands": out}))
			}
			fmt.Fprintln(con.stdout, "# for the configuration file, where they are not in the default folder:\nworkers:")
			for _, kind := range kinds {
				fmt.Fprintf(con.stdout, "  %s: {command: [%q]}\n", kind, installed[kind])
			}
			return nil
		},
	}
	con.jsonFlag(cmd, "print the workers' commands as JSON")
	cmd.Flags().StringVar(&dir, "dir", "", "install into this `DIR`ectory (default: the user's cache folder)")
	return cmd
}
