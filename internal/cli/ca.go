package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/ca"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// authority is the folder of the commands `ca …`.
type authority struct {
	con   *console
	local *local
	dir   string // --dir; "" means ca/ of the state directory
}

func caCommand(con *console, local *local) *cobra.Command {
	a := &authority{con: con, local: local}
	cmd := &cobra.Command{
		Use: "ca", Short: "Make certificates for schedulers that other hosts reach", Args: knownCommand,
		Long: `A scheduler that other hosts reach needs a certificate (api.tls in the configuration), by which
clients and nodes know it. Yours may come from anywhere; where there is nobody to ask, this is a small
authority of your own: init makes it once, issue makes a certificate of it for each scheduler, and again
to renew one. Clients and nodes take ca.crt with --ca; a scheduler takes its own NAME.crt and NAME.key.

All of it lies in ca/ of the state directory, or in --dir. Whoever has ca.key can pose as any of your
schedulers: keep it on a host where no agents run. docs/fleet.md tells more.`,
		Example: "  scheduler ca init\n  scheduler ca issue a --host a.example.com --host 10.0.0.1\n  scheduler ca ls",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&a.dir, "dir", "", "the `FOLDER` of the authority (default: ca in the state directory)")
	cmd.AddCommand(a.initCommand(), a.issueCommand(), a.lsCommand())
	return cmd
}

func (a *authority) initCommand() *cobra.Command {
	var expires string
	cmd := &cobra.Command{
		Use: "init", Short: "Make the authority", Args: cobra.NoArgs,
		Long: `Make the authority, once: its certificate, ca.crt, and its key, ca.key (ECDSA P-256). One that is
there is left as it is. The certificate is no secret: copy it to clients and nodes, for --ca.`,
		Example: "  scheduler ca init\n  scheduler ca init --dir /etc/agentsched/ca --expires 3650d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			life, err := lifeFlag(expires, ca.DefaultAuthorityLife)
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), func(dir string) (*ca.Certificate, error) {
				made, err := ca.Init(dir, life, time.Now())
				if errors.Is(err, fs.ErrExist) {
					return nil, usage(fmt.Errorf("there is a certificate authority in %s already", dir), "`scheduler ca issue` makes certificates of it; --dir names another folder")
				}
				return made, err
			})
		},
	}
	cmd.Flags().StringVar(&expires, "expires", "", "end it after this much `TIME` (default 3650d)")
	return cmd
}

func (a *authority) issueCommand() *cobra.Command {
	var hosts []string
	var expires string
	cmd := &cobra.Command{
		Use: "issue NAME", Short: "Make a certificate for a scheduler, or renew it", Args: cobra.ExactArgs(1),
		Long: `Make a certificate and a key (ECDSA P-256) for a scheduler, NAME.crt and NAME.key, in place of what is
there under that name. --host gives each name and address by which it is called, also those of a load
balancer in front of it. Without --host a certificate is renewed for the hosts that it had.

A scheduler reads the files of api.tls again when they change: nothing has to be started anew.`,
		Example: "  scheduler ca issue a --host a.example.com --host 10.0.0.1\n  scheduler ca issue a --expires 90d --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			life, err := lifeFlag(expires, ca.DefaultLife)
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), func(dir string) (*ca.Certificate, error) {
				by, err := ca.Open(dir)
				if err != nil {
					return nil, noAuthority(err)
				}
				return by.Issue(args[0], hosts, life, time.Now())
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&hosts, "host", nil, "a name or an `ADDRESS` by which the scheduler is called; may be repeated")
	f.StringVar(&expires, "expires", "", "end it after this much `TIME` (default 365d)")
	return cmd
}

// certificates is what `ca ls --json` prints.
type certificates struct {
	Certificates []ca.Certificate `json:"certificates"`
}

func (a *authority) lsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the certificates, and until when they are valid", Args: cobra.NoArgs,
		Long:    "List the authority and what it has issued: for which hosts, and until when. The first line is the authority's.",
		Example: "  scheduler ca ls\n  scheduler ca ls --json",
		RunE: func(*cobra.Command, []string) error {
			dir, err := a.folder()
			if err != nil {
				return err
			}
			list, err := ca.List(dir)
			if err != nil {
				return noAuthority(err)
			}
			return a.con.print(certificates{list}, func(w io.Writer) error { return printCertificates(w, list, time.Now()) })
		},
	}
}

func printCertificates(w io.Writer, list []ca.Certificate, now time.Time) error {
	return table(w, "NAME\tUNTIL\tHOSTS\tFILE\tNOTE", func(w io.Writer) {
		for i := range list {
			c := &list[i]
			note := expiryNote(c.NotAfter, now)
			if c.Foreign {
				note = "this authority has not signed it"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.NotAfter.Local().Format(time.DateOnly), dash(strings.Join(c.Hosts, ", ")), c.CertFile, note)
		}
	})
}

// soon is how long before its end a certificate is to be renewed.
const soon = 30 * 24 * time.Hour

// expiryNote says what is to be done about the end of a certificate; "" means nothing yet.
func expiryNote(until, now time.Time) string {
	switch left := until.Sub(now); {
	case left <= 0:
		return "expired"
	case left < soon:
		return fmt.Sprintf("ends in %d days", int(left.Hours()/24))
	}
	return ""
}

// folder is where the authority lies.
func (a *authority) folder() (string, error) {
	if a.dir != "" {
		return filepath.Abs(a.dir)
	}
	path, err := a.local.statePath()
	if err != nil {
		return "", err
	}
	return filepath.Join(path, "ca"), nil
}

// change makes a certificate in the folder, and says what becomes of it. The state directory is made if it is not there; an
// agent's run may change nothing.
func (a *authority) change(ctx context.Context, do func(dir string) (*ca.Certificate, error)) error {
	folder, err := a.folder()
	if err != nil {
		return err
	}
	path, err := a.local.statePath()
	if err != nil {
		return err
	}
	state, err := statedir.Open(path)
	if err != nil {
		return usage(err)
	}
	if err := a.local.outside(ctx, state); err != nil {
		return err
	}
	made, err := do(folder)
	if err != nil {
		return usageUnlessSaid(err)
	}
	a.local.did(ctx, state, audit.Entry{Action: certificateIssued, Target: made.Name, Detail: map[string]any{"hosts": made.Hosts, "not_after": made.NotAfter, "file": made.CertFile}})
	return a.con.print(made, func(w io.Writer) error { return printMade(w, made) })
}

// printMade says where a certificate lies, and who needs it.
func printMade(w io.Writer, c *ca.Certificate) error {
	var b strings.Builder
	if c.Authority {
		fmt.Fprintf(&b, "certificate authority until %s: %s\nclients and nodes take it with --ca; its key, %s, never leaves this host\n", c.NotAfter.Local().Format(time.DateOnly), c.CertFile, c.KeyFile)
	} else {
		fmt.Fprintf(&b, "certificate %s for %s until %s; in the scheduler's configuration:\n\n", c.Name, strings.Join(c.Hosts, ", "), c.NotAfter.Local().Format(time.DateOnly))
		fmt.Fprintf(&b, "api:\n  listen: 0.0.0.0:7433\n  hosts: [%s]\n  tls: {cert: %q, key: %q}\n", yamlList(c.Hosts), c.CertFile, c.KeyFile)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// yamlList lists texts in YAML.
func yamlList(texts []string) string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = scalar(text)
	}
	return strings.Join(list, ", ")
}

// noAuthority adds what to do where there is no authority yet.
func noAuthority(err error) error {
	return hinted(usageUnlessSaid(err), ca.ErrNone, "`scheduler ca init` makes one; --dir names the folder of another")
}

// usageUnlessSaid is usage of an error that has no exit code yet.
func usageUnlessSaid(err error) error {
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	return usage(err)
}

// lifeFlag reads --expires.
func lifeFlag(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	var span job.Duration
	span, err := spanFlag("expires", text)
	return span.Std(), err
}
