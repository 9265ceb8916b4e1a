package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/trigger"
)

func configCommand(con *console, prog *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check the configuration", Args: cobra.NoArgs,
		Long: "Look at the configuration, which docs/config.md explains. `kill -HUP` has a running scheduler read it again.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	check := &cobra.Command{
		Use: "check [FILE]", Short: "Check a configuration file", Args: cobra.MaximumNArgs(1),
		Long: `Read a configuration file as a scheduler would (without FILE the one that it would
read), and the job files of its triggers, and tell what it sets, or all its mistakes
with line and column.

Exit code: 0 the file is right, or there is none and none was named; 2 it is not.`,
		Example: "  scheduler config check\n  scheduler config check new.yaml --json",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return checkConfig(con, prog, args[0])
			}
			return checkConfig(con, prog, prog.configPath)
		},
	}
	cmd.AddCommand(check)
	return cmd
}

// checkedConfig is what `config check --json` prints of a file that is right.
type checkedConfig struct {
	Path string   `json:"path"` // "": there is no file
	Sets []string `json:"sets"` // what is other than by default, by its path in the file
}

// checkConfig checks the file at path; "" is the one of the default path.
func checkConfig(con *console, prog *program, path string) error {
	none := checkedConfig{Sets: []string{}}
	if path == "" {
		byDefault, err := config.DefaultPath()
		if _, statErr := os.Stat(byDefault); con.json && (err != nil || errors.Is(statErr, os.ErrNotExist)) {
			return failure(writeJSON(con.stdout, none))
		}
		if err != nil { // no home folder, no file
			fmt.Fprintln(con.stdout, "there is no configuration file: everything has its default")
			return nil
		}
		if _, err := os.Stat(byDefault); errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(con.stdout, "there is no %s: everything has its default\n", byDefault)
			return nil
		}
		path = byDefault
	}
	cfg, err := config.Load(path, prog.configOptions())
	if err != nil {
		return usage(err)
	}
	if err := prog.checkTriggers(&cfg); err != nil {
		return usage(err)
	}
	if con.json {
		return failure(writeJSON(con.stdout, checkedConfig{Path: path, Sets: append(none.Sets, setBy(cfg)...)}))
	}
	fmt.Fprintf(con.stdout, "%s is valid; %s\n", path, told(cfg))
	return nil
}

// checkTriggers reads the job files of all triggers, as they do when they fire.
func (prog *program) checkTriggers(cfg *config.Config) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Triggers)) {
		if _, err := prog.firingJobs(trigger.Firing{Trigger: name, Settings: cfg.Triggers[name]}, cfg); err != nil {
			errs = append(errs, fmt.Errorf("trigger %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// told names what cfg sets. It repeats no value: some are secrets.
func told(cfg config.Config) string {
	paths := setBy(cfg)
	if len(paths) == 0 {
		return "everything has its default"
	}
	return "other than by default: " + strings.Join(paths, ", ")
}

// setBy lists what cfg sets, by its path in the file.
func setBy(cfg config.Config) []string {
	reload, restart := config.Changes(config.Default(), cfg)
	return append(reload, restart...)
}
