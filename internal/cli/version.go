package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand(con *console, prog *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Long:    "Print the version of this program. `scheduler status --json` tells those of running cores.",
		Example: "  scheduler version\n  scheduler version --json | jq -r .version",
		RunE: func(*cobra.Command, []string) error {
			return con.print(map[string]string{"version": prog.version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, "scheduler", prog.version)
				return err
			})
		},
	}
	return cmd
}
