package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/statedir"
)

func tokenCommand(con *console, local *local) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Manage tokens for access over TCP", Args: knownCommand,
		Long: `Tokens let other programs, and other hosts, reach a scheduler that listens on TCP (api.listen in
the configuration). Each has a role:

  read      look at everything
  submit    and submit jobs
  operate   and decide, stop, change and grant: all that you may
  node      be the node of that name (` + "`scheduler node`" + `), and nothing else

They are kept in the state directory, as hashes. A scheduler that is running takes a change
over within a second. The unix socket needs none, but the key in the state directory.`,
		Example: "  scheduler token create ci --role submit --expires 90d\n  scheduler token ls\n  scheduler token revoke ci",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tokenCreateCommand(con, local), tokenLsCommand(con, local), tokenRevokeCommand(con, local))
	return cmd
}

// tokensIn opens the tokens of a state directory, or of the database that its queue lies
// in, until done is called. Any number of processes may.
func (local *local) tokensIn(ctx context.Context, dir *statedir.Dir) (_ *access.Tokens, done func(), err error) {
	docs, done, err := local.documents(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	tokens, err := access.OpenTokens(ctx, docs)
	if err != nil {
		done()
		return nil, nil, usage(err)
	}
	return tokens, done, nil
}

// existingTokens opens the tokens of the state directory, which must be there.
func (local *local) existingTokens(ctx context.Context) (_ *access.Tokens, done func(), err error) {
	dir, err := local.existing()
	if err != nil {
		return nil, nil, err
	}
	return local.tokensIn(ctx, dir)
}

// newToken is what `token create --json` prints.
type newToken struct {
	access.Token
	Text string `json:"token"` // secret; it cannot be had again
}

func tokenCreateCommand(con *console, local *local) *cobra.Command {
	var role, expires string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a token and print it, once", Args: cobra.ExactArgs(1),
		Long: `Make a token and print it. It is shown this once: only its hash is kept. Whoever sends it may do
what its role allows; in the audit log they are NAME.

The state directory is made if it is not there, so that a token can be there before the
scheduler first listens. Lengths of time are written 90s, 15m, 24h or 30d.`,
		Example: "  scheduler token create ci --role submit --expires 90d\n  scheduler token create grafana --role read > ~/.config/agentsched-token",
		RunE: func(cmd *cobra.Command, args []string) error {
			may, err := access.ParseTokenRole(role)
			if err != nil {
				return usage(fmt.Errorf("--%w", err))
			}
			var ttl time.Duration
			if expires != "" {
				span, err := spanFlag("expires", expires)
				if err != nil {
					return err
				}
				ttl = span.Std()
			}
			path, err := local.statePath()
			if err != nil {
				return err
			}
			dir, err := statedir.Open(path)
			if err != nil {
				return usage(err)
			}
			if err := local.outside(cmd.Context(), dir); err != nil {
				return err
			}
			tokens, done, err := local.tokensIn(cmd.Context(), dir)
			if err != nil {
				return err
			}
			defer done()
			token, text, err := tokens.Create(cmd.Context(), args[0], may, ttl)
			if err != nil {
				return usage(err)
			}
			local.did(cmd.Context(), dir, audit.Entry{Action: tokenCreated, Target: token.Name, Detail: map[string]any{"id": token.ID, "role": token.Role}})
			if con.json {
				return failure(writeJSON(con.stdout, newToken{token, text}))
			}
			if _, err := fmt.Fprintln(con.stdout, text); err != nil {
				_, undo := tokens.Revoke(cmd.Context(), token.ID)
				return failure(errors.Join(fmt.Errorf("print the token: %w", err), undo))
			}
			fmt.Fprintf(con.stderr, "token %s (id %s) may %s, %s; it is not shown again\n", token.Name, token.ID, token.Role, lastsText(&token))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", string(access.Read), "what it may do: read, submit, operate or node")
	f.StringVar(&expires, "expires", "", "end it after this much `TIME` (default: never)")
	con.jsonFlag(cmd, "print JSON, the token in the field token")
	completeRole(cmd)
	return cmd
}

// completeRole completes the flag --role, which cmd has.
func completeRole(cmd *cobra.Command) {
	var words []string
	for _, r := range access.Roles() {
		words = append(words, string(r))
	}
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func lastsText(t *access.Token) string {
	if t.Expires.IsZero() {
		return "for ever"
	}
	return "until " + t.Expires.Local().Format(time.DateTime)
}

// tokenList is what `token ls --json` prints.
type tokenList struct {
	Tokens []access.Token `json:"tokens"`
}

func tokenLsCommand(con *console, local *local) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List the tokens, without what they are", Args: cobra.NoArgs,
		Long:    "List the tokens that were made and not revoked: name, role, until when. What a token is was shown once.",
		Example: "  scheduler token ls\n  scheduler token ls --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			tokens, done, err := local.existingTokens(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			list, err := tokens.List(cmd.Context())
			if err != nil {
				return failure(err)
			}
			return con.print(tokenList{list}, func(w io.Writer) error { return printTokens(w, list, time.Now()) })
		},
	}
	return cmd
}

func printTokens(w io.Writer, list []access.Token, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no tokens")
		return err
	}
	return table(w, "ID\tNAME\tROLE\tCREATED\tEXPIRES\tNOTE", func(w io.Writer) {
		for i := range list {
			t := &list[i]
			note := ""
			if t.Expired(now) {
				note = "expired"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, t.Role, clock(t.Created, now), orDash(!t.Expires.IsZero(), "%s", clock(t.Expires, now)), note)
		}
	})
}

func tokenRevokeCommand(con *console, local *local) *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke ID|NAME...", Short: "End tokens, at once and for good", Args: cobra.MinimumNArgs(1),
		Long: `End tokens. A scheduler that is running refuses them within a second; what they are following
by then, a log say, ends within some seconds. Jobs that they have submitted go on.`,
		Example:           "  scheduler token revoke ci",
		ValidArgsFunction: local.completeTokens,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := local.existing()
			if err != nil {
				return err
			}
			if err := local.outside(cmd.Context(), dir); err != nil {
				return err
			}
			tokens, done, err := local.tokensIn(cmd.Context(), dir)
			if err != nil {
				return err
			}
			defer done()
			var errs []error
			ended := []access.Token{}
			for _, ref := range args {
				t, err := tokens.Revoke(cmd.Context(), ref)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				local.did(cmd.Context(), dir, audit.Entry{Action: tokenRevoked, Target: t.Name, Detail: map[string]any{"id": t.ID, "role": t.Role}})
				if ended = append(ended, t); !con.json {
					fmt.Fprintf(con.stdout, "token %s (id %s) is revoked\n", t.Name, t.ID)
				}
			}
			if con.json {
				errs = append(errs, writeJSON(con.stdout, tokenList{ended}))
			}
			return failure(errors.Join(errs...))
		},
	}
	con.jsonFlag(cmd, "print the tokens as JSON")
	return cmd
}

// completeTokens completes the names of tokens that are not there yet.
func (local *local) completeTokens(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	tokens, done, err := local.existingTokens(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer done()
	list, _ := tokens.List(ctx)
	var names []string
	for i := range list {
		if !slices.Contains(args, list[i].Name) {
			names = append(names, cobra.CompletionWithDesc(list[i].Name, cmp.Or(string(list[i].Role), "token")))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
