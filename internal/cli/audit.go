package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func auditCommand(con *console, local *local, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Show and verify the audit log",
		Long: `The audit log holds who did what, how they came in, and which commands agents ran:
docs/audit.md.`,
		Args:    cobra.NoArgs,
		Example: "  scheduler audit verify\n  scheduler audit tail --job 0198f3c2",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(auditVerifyCommand(con, local), auditTailCommand(con, local, at))
	return cmd
}

func auditVerifyCommand(con *console, local *local) *cobra.Command {
	var expect, against []string
	var instance string
	cmd := &cobra.Command{
		Use: "verify [DIR | FILE...]", Short: "Verify that the audit log is unchanged",
		Long: `Look whether each record of the audit log is as it was written and stands behind the one
that it was written behind, and whether the log ends where it did. It exits 0 if so, else 1
with what is wrong. The last record's number and hash are printed: kept in another place,
and given with --expect later, they show that nobody has written the log anew since.
Schedulers that share a store record where each other's logs end: with --against, the log
must have all records to which the log of another host refers.
The log is that of the state directory, or DIR, or FILEs in their order.`,
		Example: "  scheduler audit verify\n  scheduler audit verify --expect 812:5f1e…\n  scheduler audit verify --against other-host/audit\n  scheduler audit verify audit-000001.jsonl audit-000002.jsonl",
		RunE: func(_ *cobra.Command, args []string) error {
			var known audit.Expected
			for _, text := range expect {
				h, err := audit.ParseHead(text)
				if err != nil {
					return usage(fmt.Errorf("--expect: %w", err), "an earlier `scheduler audit verify` prints it")
				}
				known.Heads = append(known.Heads, h)
			}
			report, err := verifyAudit(local, args, known, against, job.InstanceID(instance))
			if err != nil {
				return err
			}
			err = con.print(report, func(w io.Writer) error {
				printAudit(w, &report)
				return nil
			})
			if err == nil && !report.Whole() {
				err = fmt.Errorf("the audit log is not whole: %s", count(len(report.Problems), "problem"))
			}
			return failure(err)
		},
	}
	cmd.Flags().StringArrayVar(&expect, "expect", nil, "a record `SEQ:HASH` that must be in the log; may be given again")
	cmd.Flags().StringArrayVar(&against, "against", nil, "the audit log of another host, a `FOLDER` or a file; may be given again")
	cmd.Flags().StringVar(&instance, "instance", "", "with --against: the `ID` of whose log it is (default: that of the state directory, or as its records say)")
	return cmd
}

// verifyAudit reads the log that the arguments mean.
func verifyAudit(local *local, args []string, known audit.Expected, against []string, instance job.InstanceID) (audit.Report, error) {
	if len(args) == 0 {
		path, err := local.auditDir()
		if err != nil {
			return audit.Report{}, err
		}
		args = []string{path}
		if instance == "" {
			dir, err := local.existing()
			if err != nil {
				return audit.Report{}, err
			}
			instance = dir.Instance()
		}
	}
	// The other logs first: this one may grow meanwhile.
	for _, path := range against {
		if instance == "" {
			var err error
			if instance, err = audit.InstanceOf(args[len(args)-1]); err != nil {
				return audit.Report{}, usage(err)
			}
			if instance == "" {
				return audit.Report{}, usage(fmt.Errorf("%s does not say whose log it is: it has no %s record", args[len(args)-1], audit.ActionHeads), "--instance ID says it; instance.json in the state directory has the ID")
			}
		}
		refs, err := audit.ReadReferences(path, instance)
		if err != nil {
			return audit.Report{}, usage(fmt.Errorf("--against: %w", err))
		}
		known.References = append(known.References, refs)
	}
	info, err := os.Stat(args[0])
	if err != nil {
		return audit.Report{}, usage(err)
	}
	var report audit.Report
	switch {
	case !info.IsDir():
		report, err = known.VerifyFiles(args)
	case len(args) > 1:
		return audit.Report{}, usage(fmt.Errorf("%s is a folder: give one folder, or files", args[0]))
	default:
		report, err = known.Verify(args[0])
	}
	return report, failure(err)
}

// auditDir is the folder of the state directory's log.
func (local *local) auditDir() (string, error) {
	dir, err := local.existing()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir.Path(), "audit")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", usage(fmt.Errorf("there is no audit log in %s: nothing was recorded yet", dir.Path()), "audit.enabled in the configuration says whether there is one: docs/audit.md")
	}
	return path, nil
}

func printAudit(w io.Writer, r *audit.Report) {
	for _, p := range r.Problems {
		where := p.File
		if p.Line > 0 {
			where += fmt.Sprintf(":%d", p.Line)
		}
		if p.Seq > 0 {
			where += fmt.Sprintf(" (record %d)", p.Seq)
		}
		fmt.Fprintf(w, "%s: %s: %s\n", strings.TrimSpace(where), p.Kind, terminal.Clean(p.Text))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", terminal.Clean(n))
	}
	if r.Whole() {
		fmt.Fprintf(w, "whole: %s in %s, from record %d on\n", count(r.Records, "record"), count(len(r.Files), "file"), r.First)
	}
	if r.Last.Seq > 0 {
		fmt.Fprintf(w, "last: %s\n", r.Last)
	}
}

func auditTailCommand(con *console, local *local, at *target) *cobra.Command {
	var who, id string
	n := 20
	cmd := &cobra.Command{
		Use: "tail", Short: "Print the last records of the audit log", Args: cobra.NoArgs,
		Long: `Print the last records of the audit log, the oldest first, as they are: "scheduler audit
verify" says whether to believe them.`,
		Example: "  scheduler audit tail -n 50\n  scheduler audit tail --job fix-login\n  scheduler audit tail --who ann --json | jq .action",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 {
				return usage(fmt.Errorf("invalid -n %d: use 1 or more", n))
			}
			dir, err := local.auditDir()
			if err != nil {
				return err
			}
			if id != "" {
				// The log is there for jobs too that the queue does not have any more.
				at.do(func(p *peer) error { //nolint:errcheck // see above
					j, err := p.Job(cmd.Context(), id)
					if err == nil {
						id = string(j.Job.ID)
					}
					return err
				})
			}
			list, damaged, err := audit.Last(dir, n, func(r *api.AuditRecord) bool {
				return (who == "" || r.Who.Name == who) && (id == "" || r.Job != "" && sameJob(r.Job, id))
			})
			if damaged > 0 {
				err = errors.Join(err, fmt.Errorf("%s cannot be read; `scheduler audit verify` says which", count(damaged, "line")))
			}
			return failure(errors.Join(printRecords(con, list), err))
		},
	}
	flags := cmd.Flags()
	con.jsonFlag(cmd, "print JSON Lines")
	flags.IntVarP(&n, "lines", "n", n, "print the last `N` records")
	flags.StringVar(&who, "who", "", "only those of this `NAME`")
	flags.StringVar(&id, "job", "", "only those of this `JOB`: its name, its id, or the first or last characters of that")
	return cmd
}

// sameJob reports whether ref means the job: its id, or the first or last
// characters of it.
func sameJob(id job.ID, ref string) bool {
	return strings.HasPrefix(string(id), ref) || strings.HasSuffix(string(id), ref)
}

func printRecords(con *console, list []api.AuditRecord) error {
	if con.json {
		enc := terminal.NewEncoder(con.stdout)
		enc.SetEscapeHTML(false)
		for i := range list {
			if err := enc.Encode(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		fmt.Fprintln(con.stdout, "nothing is recorded")
		return nil
	}
	return table(con.stdout, "RECORD\tTIME\tWHO\tDOOR\tACTION\tON\tDETAIL", func(w io.Writer) {
		for i := range list {
			r := &list[i]
			on := r.Target
			if on == "" && r.Job != "" {
				on = string(r.Job)
				if r.Attempt > 0 {
					on += fmt.Sprintf("/%d", r.Attempt)
				}
			}
			detail, _ := job.Cut(string(r.Detail), 160)
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Seq, r.Time.Local().Format(time.DateTime),
				terminal.Clean(r.Who.Name), terminal.Clean(r.Who.Door), terminal.Clean(r.Action), terminal.Clean(on), terminal.Clean(firstLine(strings.ReplaceAll(detail, "\n", " "))))
		}
	})
}
