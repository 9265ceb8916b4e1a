package cli

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
)

// roles are what somebody may do with a scheduler, each more than
// the one before it.
var roles = []string{"read", "submit", "operate"}

func uiCommand(con *console, at *target) *cobra.Command {
	var role string
	var noOpen bool
	cmd := &cobra.Command{
		Use: "ui", Short: "Open the dashboard of the running scheduler in a browser", Args: cobra.NoArgs,
		Long: `Print a link that opens the dashboard of the running scheduler once, within a few minutes,
and open it in a browser if there is a display. Whoever follows it may do what the role
allows, until they log out, have not used it for 12 hours, or 7 days are over. Where the
configuration does not say where the scheduler listens (api.listen), a port of this host
alone is opened for it.`,
		Example: "  scheduler ui\n  scheduler ui --role read --no-open",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(roles, role) {
				return usage(fmt.Errorf("unknown --role %q: use %s", role, wordList(roles)))
			}
			c, err := at.running()
			if err != nil {
				return err
			}
			defer c.Close()
			link, err := c.UILink(cmd.Context(), role)
			if err != nil {
				return notRunning(err)
			}
			if con.json {
				return failure(writeJSON(con.stdout, api.UILink{Role: role, URL: link.URL, ExpiresAt: link.ExpiresAt}))
			}
			fmt.Fprintln(con.stdout, link.URL)
			fmt.Fprintf(con.stderr, "the link works once, until %s\n", clock(link.ExpiresAt, time.Now()))
			if !noOpen && con.hasDisplay() {
				openBrowser(cmd.Context(), link.URL)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "operate", "what the browser may do: read, submit or operate")
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the link")
	con.jsonFlag(cmd, "print JSON, and open nothing")
	return cmd
}

// hasDisplay reports whether a browser that is opened here would be seen.
func (con *console) hasDisplay() bool {
	return runtime.GOOS == "darwin" || con.getenv("DISPLAY") != "" || con.getenv("WAYLAND_DISPLAY") != ""
}

// openFor is how long a program that opens a link may take; it goes on by itself.
const openFor = 10 * time.Second

// openBrowser opens a link. Where that does not work, the person has it printed.
func openBrowser(ctx context.Context, url string) {
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return // it is given to a program
	}
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	ctx, cancel := context.WithTimeout(ctx, openFor)
	defer cancel()
	_ = exec.CommandContext(ctx, program, url).Run()
}
