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
	root.SetOut(m.stdout)
	root.SetErr(m.stderr)
	flags := root.PersistentFlags()
	flags.StringVar(&m.stateDir, "state", "", "state `DIR`ectory (default $XDG_STATE_HOME/agentsched or ~/.local/state/agentsched)")
	flags.StringVar(&m.configPath, "config", "", "configuration `FILE` (default $XDG_CONFIG_HOME/agentsched/config.yaml if it exists)")
	flags.StringVar(&m.corePath, "core", "", "agentcore `PROGRAM` to run (default: beside this program, on PATH, or this program itself)")
	flags.StringVar(&m.logLevel, "log-level", "", "least `LEVEL` of lines of the log: debug, info, warn, error, off (default from the configuration, or info)")
	root.AddCommand(
		m.runCommand(), m.serveCommand(), m.submitCommand(), m.triggersCommand(), m.lsCommand(), m.showCommand(), m.logsCommand(), m.cancelCommand(), m.dlqCommand(),
		m.statusCommand(), m.resumeCommand(), m.crashesCommand(), m.restartCoreCommand(), m.simulateCommand(),
		m.planCommand(), m.replayCommand(), m.pipelinesCommand(), m.checkpointCommand(), m.evaluateCommand(), m.reputationCommand(), m.approvalsCommand(), m.approveCommand(), m.rejectCommand(), m.agentsCommand(), m.diffCommand(), m.applyCommand(), m.cleanCommand(), m.usageCommand(), m.grantCommand(), m.backupCommand(), m.recoverCommand(), m.configCommand(), m.doctorCommand(), m.demoCommand(), m.installCommand(), m.versionCommand(), m.tokenCommand(), m.auditCommand(),
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
