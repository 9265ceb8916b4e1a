package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/terminal"
)

func resumeCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume SCOPE", Short: "Lift an isolation or a pause", Args: cobra.ExactArgs(1),
		Long: `Lift an isolation or a pause, whether or not a scheduler is running. SCOPE is one
that ` + "`scheduler status`" + ` lists:

  global            everything
  node:NAME         a node; its cores in a crash loop are tried again at once
  worker:KIND       a kind of worker, e.g. worker:codex; worker:codex@ann for one tenant
  workspace:PATH    a folder, with all below and above it
  node:NAME/...     a worker or a folder on one node, e.g. node:node-a/worker:codex
  trigger:NAME      what a trigger submits
  core:N            a core in a crash loop: it is tried again at once

If what led to the isolation lasts, it will be isolated again.`,
		Example: "  scheduler resume worker:codex\n  scheduler resume workspace:.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error { return resume(cmd.Context(), con, p, args[0]) })
		},
	}
	con.jsonFlag(cmd, "print the isolation that was lifted as JSON")
	return cmd
}

func resume(ctx context.Context, con *console, p *peer, arg string) error {
	scope, err := readScope(arg)
	if err != nil {
		return usage(err, isolated(ctx, p))
	}
	i, err := change(ctx, p, func() (api.Isolation, error) { return p.Resume(ctx, scope) })
	if err != nil {
		return err
	}
	why := ""
	if i.Message != "" {
		why = fmt.Sprintf("; it was isolated on %s: %s", i.Since.Local().Format(time.DateTime), terminal.Clean(i.Message))
	}
	return con.print(i, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s is in use again%s\n", terminal.Clean(i.Scope), why)
		return err
	})
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
		return "", fmt.Errorf("invalid scope %q: use global, node:NAME, worker:KIND, worker:KIND@TENANT, workspace:PATH, trigger:NAME or core:N", text)
	}
	return string(scope), nil
}

const workspaceScope = "workspace:"

// isolated says what could be resumed.
func isolated(ctx context.Context, s *peer) string {
	st, err := s.Status(ctx)
	if err != nil {
		return "`scheduler status` lists what is isolated"
	}
	var scopes []string
	for _, i := range st.Isolations {
		scopes = append(scopes, quoteScope(i.Scope))
	}
	for _, c := range st.Cores {
		if c.IsolatedUntil.After(utcNow()) && c.Node == "" {
			scopes = append(scopes, coreScope+strconv.Itoa(c.Index))
		}
	}
	if len(scopes) == 0 {
		return "nothing is isolated"
	}
	return "isolated are: " + strings.Join(scopes, ", ")
}
