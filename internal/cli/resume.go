package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
)

func (m *Main) resumeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "resume SCOPE", Short: "Put back into use what was isolated or paused", Args: cobra.ExactArgs(1),
		Long: `Put back into use what was isolated or paused, whether or not a scheduler is running. SCOPE is one
that ` + "`scheduler status`" + ` lists:

  global            everything
  worker:KIND       a kind of worker, e.g. worker:codex; worker:codex@ann for one tenant
  workspace:PATH    a folder, with all below and above it
  trigger:NAME      what a trigger submits
  core:N            a core in a crash loop: it is tried again at once

If what led to the isolation lasts, it will be isolated again.`,
		Example: "  scheduler resume worker:codex\n  scheduler resume workspace:.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.on(func(s site) error { return m.resume(cmd.Context(), s, args[0], asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the isolation that was lifted as JSON")
	return cmd
}

func (m *Main) resume(ctx context.Context, s site, arg string, asJSON bool) error {
	scope, err := readScope(arg)
	if err != nil {
		return usage(err, isolated(ctx, s.reads()))
	}
	i, err := s.Resume(ctx, scope)
	if err != nil {
		return err
	}
	if asJSON {
		return failure(writeJSON(m.stdout, i))
	}
	fmt.Fprintf(m.stdout, "%s is in use again", terminal.Clean(i.Scope))
	if i.Message != "" {
		fmt.Fprintf(m.stdout, "; it was isolated on %s: %s", i.Since.Local().Format(time.DateTime), terminal.Clean(i.Message))
	}
	_, err = fmt.Fprintln(m.stdout)
	return failure(err)
}

// resumeInFile lifts the isolation that no running scheduler knows of.
func (m *Main) resumeInFile(dir *statedir.Dir, scope string) (api.Isolation, error) {
	var none api.Isolation
	if strings.HasPrefix(scope, coreScope) {
		return none, fmt.Errorf("%s: %w", scope, client.ErrNotRunning)
	}
	lock, err := dir.Lock()
	if err != nil {
		return none, err
	}
	defer lock.Release()
	if err := m.outsideAlone(dir); err != nil {
		return none, err
	}
	book, err := scheduler.LoadIsolations(dir.Isolations())
	if err != nil {
		return none, err
	}
	book.Expire(utcNow()) // what is over cannot be lifted
	i, err := scheduler.LiftIsolation(book, scope)
	if err != nil {
		return none, err
	}
	if err := scheduler.SaveIsolations(dir.Isolations(), book); err != nil {
		return none, err
	}
	m.did(context.Background(), dir, audit.Entry{Action: deedResume, Target: scope})
	return server.IsolationOf(&i), nil
}

// coreScope begins the scope of a core, which only a running scheduler knows.
const coreScope = "core:"

// readScope returns the scope that a user means: a workspace may be relative,
// and reached through symbolic links.
func readScope(text string) (string, error) {
	if n, ok := strings.CutPrefix(text, coreScope); ok {
		if index, err := strconv.Atoi(n); err == nil && index > 0 {
			return text, nil
		}
	}
	if path, ok := strings.CutPrefix(text, workspaceScope); ok && path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			abs = real // one that is gone may be isolated all the same
		}
		text = workspaceScope + abs
	}
	scope, err := isolation.ParseScope(text)
	if err != nil {
		return "", fmt.Errorf("%q is no scope, want global, worker:KIND, worker:KIND@TENANT, workspace:PATH, trigger:NAME or core:N", text)
	}
	return string(scope), nil
}

const workspaceScope = "workspace:"

// isolated says what could be resumed.
func isolated(ctx context.Context, s *reader) string {
	st, err := s.Status(ctx)
	if err != nil {
		return "`scheduler status` lists what is isolated"
	}
	var scopes []string
	for _, i := range st.Isolations {
		scopes = append(scopes, quoteScope(i.Scope))
	}
	for _, c := range st.Cores {
		if c.IsolatedUntil.After(utcNow()) {
			scopes = append(scopes, coreScope+strconv.Itoa(c.Index))
		}
	}
	if len(scopes) == 0 {
		return "nothing is isolated"
	}
	return "isolated are: " + strings.Join(scopes, ", ")
}
