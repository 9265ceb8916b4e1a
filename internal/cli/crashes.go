package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/terminal"
)

func crashesCommand(con *console, local *local) *cobra.Command {
	cmd := &cobra.Command{
		Use: "crashes [REPORT]", Short: "List the crashes of cores, or show one whole", Args: cobra.MaximumNArgs(1),
		Long: fmt.Sprintf(`List the agentcores that ended without being asked to, the newest first; the last %d are
kept. With REPORT, show what is known of one: the end of its log and its crash dump. REPORT
is its id, the first or last characters of that, or "latest".`, supervisor.KeptReports),
		Example: "  scheduler crashes\n  scheduler crashes latest",
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := local.existing()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return showCrash(con, dir.Crashes(), args[0])
			}
			return listCrashes(con, dir.Crashes())
		},
	}
	return cmd
}

func listCrashes(con *console, dir string) error {
	all, err := supervisor.Reports(dir)
	switch {
	case con.json:
		return failure(errors.Join(err, writeJSON(con.stdout, append([]supervisor.Report{}, all...))))
	case len(all) == 0 && err == nil:
		fmt.Fprintln(con.stdout, "no core has crashed")
		return nil
	}
	rows := func(w io.Writer) {
		for i := range all {
			r := &all[i]
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%d\t%s\t%s\n", r.ID, r.Time.Local().Format(time.DateTime), r.Core, r.PID,
				r.Uptime.Std().Round(time.Millisecond), len(r.Runs), terminal.Clean(r.Exit), terminal.Clean(firstLine(r.LastWords)))
		}
	}
	return failure(errors.Join(err, table(con.out(), "REPORT\tTIME\tCORE\tPID\tLIVED\tRUNS\tEXIT\tLAST WORDS", rows)))
}

func showCrash(con *console, dir, ref string) error {
	r, err := supervisor.FindReport(dir, ref)
	if err != nil {
		return &exitError{code: exitFailed, err: err, hints: []string{"`scheduler crashes` lists them"}}
	}
	return con.print(r, func(w io.Writer) error {
		printCrash(w, &r)
		return nil
	})
}

func printCrash(w io.Writer, r *supervisor.Report) {
	line := func(name, format string, args ...any) {
		if text := terminal.Clean(fmt.Sprintf(format, args...)); text != "" {
			fmt.Fprintf(w, "%-12s %s\n", name+":", text)
		}
	}
	line("report", "%s", r.ID)
	line("time", "%s", r.Time.Local().Format(time.DateTime))
	line("core", "%d (pid %d)", r.Core, r.PID)
	line("version", "%s", r.Version)
	line("lived", "%s", r.Uptime.Std().Round(time.Millisecond))
	line("cause", "%s", r.Cause)
	line("exit", "%s", r.Exit)
	line("last words", "%s", r.LastWords)
	for _, run := range r.Runs {
		line("run", "%s", run)
	}
	for _, part := range []struct{ name, text string }{{"the end of its log", r.Stderr}, {"crash dump", r.Dump}} {
		if part.text == "" {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", part.name)
		for text := range strings.Lines(part.text) {
			shift := text[:len(text)-len(strings.TrimLeft(text, " \t"))] // of a stack's lines
			fmt.Fprintln(w, "  "+shift+terminal.Clean(text))
		}
	}
}
