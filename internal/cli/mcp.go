package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/mcp"
)

func mcpCommand(con *console, prog *program, at *target) *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Let your own agent use the scheduler, over MCP", Args: cobra.NoArgs,
		Long: `Speak the Model Context Protocol over standard input and output, for an agent of yours (Claude Code,
Codex, OpenCode, an editor) that is to submit jobs, follow them, answer their questions and apply what
they made. It may what you may; the scheduler has to run. docs/mcp.md lists the tools, and tells how an
agent reaches a scheduler without this program, by /mcp.

  claude mcp add scheduler -- scheduler mcp
  codex mcp add scheduler -- scheduler mcp`,
		Example: "  scheduler mcp",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			c, err := at.running()
			if err != nil {
				return err
			}
			defer c.Close()
			opt := mcp.Options{Version: prog.version, By: userName(), Apply: func(ctx context.Context, in mcp.Apply) (mcp.Applied, error) {
				return applyQuietly(ctx, con, prog, at, in)
			}}
			if at.server == "" { // whose host this is
				if opt.Dir, err = os.Getwd(); err != nil {
					return usage(err)
				}
			}
			return failure(mcp.Serve(ctx, c, con.stdin, keptOpen{con.stdout}, opt))
		},
	}
}

// keptOpen is a writer that stays open.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }

// applyQuietly is `apply` for somebody who is not at a terminal.
func applyQuietly(ctx context.Context, con *console, prog *program, at *target, in mcp.Apply) (out mcp.Applied, err error) {
	var printed, notes bytes.Buffer
	quiet := *con
	quiet.stdout, quiet.stderr, quiet.json = &printed, &notes, true
	err = at.do(func(p *peer) error {
		j, err := p.Job(ctx, in.Job)
		if err != nil {
			return err
		}
		return apply(ctx, &quiet, prog, p, &j, applyOptions{to: in.To, whole: in.Whole, anyway: in.Anyway})
	})
	if err != nil {
		if e, ok := errors.AsType[*exitError](err); ok && len(e.hints) > 0 {
			err = errors.New(e.Error() + "\n" + strings.Join(e.hints, "\n"))
		}
		return out, err
	}
	if err := json.Unmarshal(printed.Bytes(), &out); err != nil {
		return out, err
	}
	if text := strings.TrimSpace(notes.String()); text != "" {
		out.Notes = strings.Split(text, "\n")
	}
	return out, nil
}
