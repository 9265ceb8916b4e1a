package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/config"
)

func (m *Main) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Look at the configuration", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "check [FILE]", Short: "Tell whether a configuration file is right", Args: cobra.MaximumNArgs(1),
		Long: `Read a configuration file as a scheduler would (without FILE the one that it would
read) and tell what it sets, or all its mistakes with line and column.

Exit code: 0 the file is right, or there is none and none was named; 2 it is not.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return m.checkConfig(args[0])
			}
			return m.checkConfig(m.configPath)
		},
	})
	return cmd
}

// checkConfig checks the file at path; "" is the one of the default path.
func (m *Main) checkConfig(path string) error {
	if path == "" {
		byDefault, err := config.DefaultPath()
		if err != nil { // no home folder, no file
			fmt.Fprintln(m.stdout, "there is no configuration file: everything has its default")
			return nil
		}
		if _, err := os.Stat(byDefault); errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(m.stdout, "there is no %s: everything has its default\n", byDefault)
			return nil
		}
		path = byDefault
	}
	cfg, err := config.Load(path, config.Options{Adapters: m.adapterNames()})
	if err != nil {
		return usage(err)
	}
	fmt.Fprintf(m.stdout, "%s is right; %s\n", path, told(cfg))
	return nil
}

// told names what cfg sets. It repeats no value: some are secrets.
func told(cfg config.Config) string {
	reload, restart := config.Changes(config.Default(), cfg)
	paths := append(reload, restart...)
	if len(paths) == 0 {
		return "everything has its default"
	}
	return "other than by default: " + strings.Join(paths, ", ")
}
