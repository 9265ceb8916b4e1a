package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// variables of the environment that stand for flags which are not given.
const (
	serverVariable = "AGENTSCHED_SERVER"
	tokenVariable  = "AGENTSCHED_TOKEN"
)

// exitCodes is the end of the root's help.
const exitCodes = `Exit codes, of every command:
  0    it did what was asked; of run, wait and submit --wait: every job completed
  1    it failed, or a job did
  2    the command line, a file or the host is not right; nothing was started or changed
  124  wait --timeout: the time was over before the jobs had ended
  130  it was interrupted, by Ctrl-C or SIGTERM

Errors are printed on standard error as text, also with --json. Colours are printed on a
terminal only; NO_COLOR or --color=never turns them off.`

// equip adds to the command tree what is the same for all of it: flags, words
// that were meant, completions, and the commands that ask a running scheduler.
func (m *Main) equip(root *cobra.Command) {
	root.AddCommand(waitCommand(m.con, m.at), attachCommand(m.con, m.at), retryCommand(m.con, m.at), workersCommand(m.at), tenantsCommand(m.con, m.at), fleetCommand(m.con, m.at), nodeCommand(m.runs, m.at), nodesCommand(m.con, m.at), pauseCommand(m.con, m.at), topCommand(m.con, m.at), uiCommand(m.con, m.at), upgradeCommand(m.con, m.at))
	root.Long += "\n\n" + exitCodes
	if root.Example == "" {
		root.Example = "  scheduler run --worker codex --workspace . \"Fix the failing test\"\n  scheduler serve\n  scheduler submit --wait jobs.yaml\n  scheduler top"
	}
	m.con.color = colourAuto
	flags := root.PersistentFlags()
	flags.StringVar(&m.at.server, "server", "", "ask the scheduler at this `URL` instead of that of the state directory (default $"+serverVariable+")")
	flags.StringVar(&m.at.tokenFile, "token-file", "", "with --server: the `FILE` that holds the token (default: the token is $"+tokenVariable+")")
	flags.StringVar(&m.at.caFile, "ca", "", "with --server: trust the certificates of this PEM `FILE`")
	flags.Var(&m.con.color, "color", "print colours: auto, always or never")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return m.at.checkPlace(cmd) }
	root.SetFlagErrorFunc(unknownFlag)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for cmd := range commands(root) {
		if printsData(cmd) && cmd.Flags().Lookup("json") == nil {
			m.con.jsonFlag(cmd, "print JSON")
		}
		if cmd.HasSubCommands() && !cmd.HasParent() || isGroup(cmd) {
			cmd.Args = knownCommand
		}
		plainArgs(cmd)
		m.at.addCompletions(cmd)
	}
	describeCompletion(root)
	group(root)
	for cmd := range commands(root) {
		cmd.Long = strings.ReplaceAll(cmd.Long, "`", "'")
	}
}

// printsNoData are commands without --json: they print for a person or a shell, or
// what they print is a file as it is.
var printsNoData = []string{"top", "mcp", "node", "diff", "sandbox exec", "help", "completion bash", "completion zsh", "completion fish", "completion powershell"}

// printsData reports whether a command has the flag --json.
func printsData(cmd *cobra.Command) bool {
	return cmd.HasParent() && cmd.Runnable() && !cmd.Hidden && !isGroup(cmd) && !slices.Contains(printsNoData, commandName(cmd))
}

// jsonFlag adds the flag --json, which every command has that prints data; usage says what
// it prints, if that is not as much as without it.
func (con *console) jsonFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&con.json, "json", false, usage)
}

// commands are root and all below it.
func commands(root *cobra.Command) func(yield func(*cobra.Command) bool) {
	return func(yield func(*cobra.Command) bool) {
		all := []*cobra.Command{root}
		for len(all) > 0 {
			cmd := all[0]
			if !yield(cmd) {
				return
			}
			all = append(all[1:], cmd.Commands()...)
		}
	}
}

// isGroup reports whether a command only stands for those below it.
func isGroup(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && cmd.Use == cmd.Name()
}

// hostCommands work with files of the scheduler's own host.
var hostCommands = []string{
	"run", "serve", "clean", "crashes", "backup", "recover", "store copy", "token create", "token ls", "token revoke", "ca init", "ca issue", "ca ls", "audit verify", "audit tail", "ui", "upgrade",
	"sandbox show", "sandbox exec",
}

// placeless commands ask no scheduler.
var placeless = []string{
	"", "version", "help", "plan", "simulate", "doctor", "config check", "install-workers", "demo", "completion bash", "completion zsh", "completion fish", "completion powershell",
}

// checkPlace refuses --server to a command that works on its own host only.
func (at *target) checkPlace(cmd *cobra.Command) error {
	if at.server == "" {
		at.server = at.con.getenv(serverVariable)
	}
	name := commandName(cmd)
	if at.server == "" || slices.Contains(placeless, name) || isGroup(cmd) || cmd.Hidden {
		return nil
	}
	if !slices.Contains(hostCommands, name) {
		return nil
	}
	return usage(fmt.Errorf("`scheduler %s` works on the scheduler's own host only, but --server is %s", name, at.server),
		"run it there, or leave --server and "+serverVariable+" out to ask the scheduler of this host")
}

// commandName is the path of a command without the program's name.
func commandName(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return ""
	}
	if parent := commandName(cmd.Parent()); parent != "" {
		return parent + " " + cmd.Name()
	}
	return cmd.Name()
}
