package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand(con *console, prog *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Long:    "Print the version of this program. `scheduler status --json` tells those of running cores.",
		Example: "  scheduler version\n  scheduler version --json | jq -r .version",
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return failure(writeJSON(con.stdout, map[string]string{"version": prog.version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}))
			}
			_, err := fmt.Fprintln(con.stdout, "scheduler", prog.version)
			return failure(err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
