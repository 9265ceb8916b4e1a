package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// rootCommand returns the command tree.
func (m *Main) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "scheduler",
		Short: "Run coding agents as an operating system runs processes",
		Long: `scheduler runs jobs on coding agents (Codex CLI, Claude Code, OpenCode, your own):
queued durably, bounded by limits, stopped without leaving a process behind, and
continued after any of its own processes was killed.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetOut(m.con.stdout)
	root.SetErr(m.con.stderr)
	flags := root.PersistentFlags()
	flags.StringVar(&m.local.stateDir, "state", "", "state `DIR`ectory (default $XDG_STATE_HOME/agentsched or ~/.local/state/agentsched)")
	flags.StringVar(&m.prog.configPath, "config", "", "configuration `FILE` (default $XDG_CONFIG_HOME/agentsched/config.yaml if it exists)")
	flags.StringVar(&m.prog.corePath, "core", "", "agentcore `PROGRAM` to run (default: beside this program, on PATH, or this program itself)")
	flags.StringVar(&m.local.logLevel, "log-level", "", "least `LEVEL` of lines of the log: debug, info, warn, error, off (default from the configuration, or info)")
	root.AddCommand(
		runCommand(m.runs), serveCommand(m.runs), submitCommand(m.con, m.prog, m.local, m.at), triggersCommand(m.at), lsCommand(m.at), showCommand(m.con, m.at), logsCommand(m.con, m.at), cancelCommand(m.con, m.at), dlqCommand(m.con, m.prog, m.local, m.at),
		statusCommand(m.con, m.at), resumeCommand(m.con, m.at), crashesCommand(m.con, m.local), restartCoreCommand(m.con, m.at), simulateCommand(m.con, m.prog),
		planCommand(m.con, m.prog), replayCommand(m.at), pipelinesCommand(m.con, m.at), checkpointCommand(m.con, m.at), evaluateCommand(m.con, m.prog, m.at), reputationCommand(m.con, m.prog, m.at), approvalsCommand(m.at), approveCommand(m.con, m.at), rejectCommand(m.con, m.at), agentsCommand(m.at), diffCommand(m.con, m.at), applyCommand(m.con, m.prog, m.at), cleanCommand(m.con, m.at), usageCommand(m.at), grantCommand(m.con, m.at), grantsCommand(m.con, m.at), allowCommand(m.con, m.at), tellCommand(m.con, m.at), forkCommand(m.con, m.at), interruptCommand(m.con, m.at), takeoverCommand(m.con, m.prog, m.local, m.at), handbackCommand(m.con, m.at), answerQuestionCommand(m.con, m.at), mcpCommand(m.con, m.prog, m.at), backupCommand(m.con, m.local), storeCommand(m.con, m.local), recoverCommand(m.con, m.local), configCommand(m.con, m.prog), doctorCommand(m.con, m.prog, m.local, m.at), sandboxCommand(m.con, m.prog, m.local, m.at), demoCommand(m.con, m.prog, m.local, m.runs), installCommand(m.con, m.prog), versionCommand(m.con, m.prog), tokenCommand(m.con, m.local), auditCommand(m.con, m.local, m.at), caCommand(m.con, m.local),
	)
	m.equip(root)
	return root
}

// beside returns the path of an executable file called name in the folder of
// self, or "".
func beside(self, name string) string {
	path := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		return path
	}
	return ""
}
