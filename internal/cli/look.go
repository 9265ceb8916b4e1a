package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func utcNow() time.Time { return time.Now().UTC().Round(0) }

func lsCommand(at *target) *cobra.Command {
	var all bool
	var states []string
	var q jobQuery
	cmd := &cobra.Command{
		Use: "ls", Short: "List jobs, the newest first", Args: cobra.NoArgs,
		Long: `List jobs, the newest first, with the reason for which each is where it is.

What an agent made is shown by ` + "`scheduler show` and `diff`" + `, what happened by ` + "`scheduler logs`" + `.`,
		Example: "  scheduler ls\n  scheduler ls --tenant website --status running,failed\n  scheduler ls --all --json",
	}
	cmd.Flags().BoolVar(&all, "all", false, "list every job")
	cmd.Flags().IntVarP(&q.limit, "limit", "n", 50, "list at most `N` jobs")
	cmd.Flags().StringVar((*string)(&q.tenant), "tenant", "", "list only the jobs of this tenant")
	cmd.Flags().StringSliceVar(&states, "status", nil, "list only jobs in these `STATES`: "+strings.Join(wordsOf(job.RunStates()), ", ")+", or waiting:REASON")
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.Jobs, error) {
		if q.limit < 1 {
			return api.Jobs{}, usage(fmt.Errorf("invalid --limit %d: use 1 or more; --all lists every job", q.limit))
		}
		if err := q.in(states); err != nil {
			return api.Jobs{}, usage(err)
		}
		if all {
			q.limit = 0
		}
		return p.Jobs(ctx, q)
	}, printJobs)
}

// otherWords are what other versions and other programs call a state.
var otherWords = map[string]job.RunState{
	"queued": job.Pending, "held": job.Pending, "dispatched": job.Running, "approval": job.WaitingApproval, "paused": job.Checkpointed,
	"done": job.RunCompleted, "succeeded": job.RunCompleted, "canceled": job.RunCancelled,
}

// waitingWord selects what waits for anything; with ":REASON" behind it, for that.
const waitingWord = "waiting"

// statusWords are the words of --status: the states, and what jobs wait for.
func statusWords() []string {
	words := append(wordsOf(job.RunStates()), "expired", "skipped", waitingWord)
	for _, r := range job.WaitingReasons() {
		words = append(words, waitingWord+":"+string(r))
	}
	return words
}

// statusTest returns in which states of the queue jobs are that a word selects, and
// which of those it selects.
func statusTest(word string) ([]job.EntryState, func(*api.Job) bool, error) {
	text := strings.ToLower(word)
	state := job.RunState(text)
	if other, known := otherWords[text]; known {
		state = other
	}
	if slices.Contains(job.RunStates(), state) {
		return queue.EntryStates([]job.RunState{state}), func(e *api.Job) bool { return statusOf(e).State == state }, nil
	}
	reason, one := strings.CutPrefix(text, waitingWord+":")
	switch {
	case text == "expired":
		return []job.EntryState{job.Expired}, func(*api.Job) bool { return true }, nil
	case text == "skipped":
		return []job.EntryState{job.Cancelled, job.Completed}, func(e *api.Job) bool { return e.Skipped != "" }, nil
	case text == waitingWord || one && slices.Contains(job.WaitingReasons(), job.WaitingReason(reason)):
		return []job.EntryState{job.Queued}, func(e *api.Job) bool {
			w := statusOf(e).Waiting
			return w != nil && (!one || string(w.Reason) == reason)
		}, nil
	case one:
		return nil, nil, fmt.Errorf("unknown --status %q: a job waits for one of %s", word, wordList(wordsOf(job.WaitingReasons())))
	}
	return nil, nil, fmt.Errorf("unknown --status %q: use %s, or %s:REASON", word, strings.Join(wordsOf(job.RunStates()), ", "), waitingWord)
}

// in selects the jobs that a word selects; no words: all.
func (q *jobQuery) in(words []string) error {
	if len(words) == 0 {
		return nil
	}
	var tests []func(*api.Job) bool
	for _, word := range words {
		stored, test, err := statusTest(word)
		if err != nil {
			return err
		}
		tests = append(tests, func(e *api.Job) bool { return slices.Contains(stored, e.State) && test(e) })
		for _, state := range stored {
			if !slices.Contains(q.states, state) {
				q.states = append(q.states, state)
			}
		}
	}
	q.keep = func(e *api.Job) bool {
		return slices.ContainsFunc(tests, func(test func(*api.Job) bool) bool { return test(e) })
	}
	return nil
}

func wordsOf[T ~string](list []T) []string {
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	return words
}

func printJobs(w io.Writer, list api.Jobs) error {
	err := printRows(w, list.Jobs)
	switch {
	case err != nil:
	case list.Total < 0:
		_, err = fmt.Fprintf(w, "there may be more; --all lists them all\n")
	case len(list.Jobs) < list.Total:
		_, err = fmt.Fprintf(w, "%d of %d jobs; --all lists them all\n", len(list.Jobs), list.Total)
	}
	return err
}

// jobColumns are the columns of a list of jobs, the last of which takes what room
// is left.
var jobColumns = []struct {
	head string
	text func(*api.Job) string
}{
	{"JOB", func(e *api.Job) string { return string(e.Spec.Name) }},
	{"ID", func(e *api.Job) string { return e.ID.Short() }},
	{"TENANT", func(e *api.Job) string { return terminal.Clean(string(e.Spec.Tenant)) }},
	{"WORKER", func(e *api.Job) string { return string(workerOf(e)) }},
	{"STATE", stateWord},
	{"ATTEMPTS", func(e *api.Job) string { return fmt.Sprint(e.Attempts) }},
	{"AGE", func(e *api.Job) string { return time.Since(e.CreatedAt).Round(time.Second).String() }},
	{"NOTE", func(e *api.Job) string { return terminal.Clean(note(e)) }},
}

// minNote is how many cells of a note are worth more than another column.
const minNote = 30

// printRows prints a row for each job. On a narrow terminal columns are left out,
// and names cut, so that there is room for the state and for a part of the note.
func printRows(out io.Writer, jobs []api.Job) error {
	room := 0
	if s, ok := out.(*screen); ok {
		room = s.width
	}
	var cells [][]string // of each column
	var heads []string
	var widths []int
	for _, c := range jobColumns {
		column, width := make([]string, len(jobs)), len(c.head)
		for i := range jobs {
			column[i] = c.text(&jobs[i])
			width = max(width, ansi.StringWidthWc(column[i]))
		}
		heads, cells, widths = append(heads, c.head), append(cells, column), append(widths, width)
	}
	over := func() int { // by how much the rows are too wide
		n := min(widths[len(widths)-1], minNote)
		for _, w := range widths[:len(widths)-1] {
			n += w + 2
		}
		return n - room
	}
	for _, drop := range []string{"ATTEMPTS", "AGE", "TENANT", "WORKER"} {
		if room == 0 || over() <= 0 {
			break
		}
		i := slices.Index(heads, drop)
		heads, cells, widths = slices.Delete(heads, i, i+1), slices.Delete(cells, i, i+1), slices.Delete(widths, i, i+1)
	}
	if room > 0 && over() > 0 {
		most := max(widths[0]-over(), 12)
		for i := range cells[0] {
			cells[0][i] = ansi.TruncateWc(cells[0][i], most, "…")
		}
	}
	return table(out, strings.Join(heads, "\t"), func(w io.Writer) {
		for i := range jobs {
			row := make([]string, len(cells))
			for c := range cells {
				row[c] = cells[c][i]
			}
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
	})
}

// workerOf is the kind of worker of a job: that of its latest attempt where that is
// known, else that of the next one.
func workerOf(e *api.Job) job.WorkerKind {
	if e.Status != nil && e.Status.Worker != "" {
		return e.Status.Worker
	}
	choices := e.Spec.Choices()
	return choices[min(e.Choice, len(choices)-1)].Worker
}

// statusOf says how a job stands.
func statusOf(e *api.Job) job.Status {
	if e.Status != nil {
		return *e.Status
	}
	return job.Status{}
}

// stateWord is the state of a job in one word.
func stateWord(e *api.Job) string { return string(statusOf(e).State) }

// note says in one line why a job is where it is.
func note(e *api.Job) string {
	st := statusOf(e)
	return st.Line()
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// opening is the first line of a text that says anything, with … if others follow.
func opening(text string) string {
	text = strings.TrimSpace(text)
	first := firstLine(text)
	if first != text {
		first += " …"
	}
	return first
}

func writeJSON(w io.Writer, v any) error {
	enc := terminal.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func showCommand(con *console, at *target) *cobra.Command {
	var answer bool
	cmd := &cobra.Command{
		Use: "show JOB", Short: "Show a job: its state, its attempts, and where its patch and logs lie", Args: cobra.ExactArgs(1),
		Long: `Show a job, or with --answer the whole final message of its worker and
nothing else. JOB is its id in the job file (the newest of that name), its full id, or 8 or
more of that one's last or first characters.`,
		Example: "  scheduler show fix-login\n  scheduler show 01a1fcce --json | jq .attempts\n  scheduler show report --answer > report.md",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(s *peer) error {
				j, err := s.Job(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if answer {
					return printAnswer(cmd.Context(), con, s, &j)
				}
				return con.print(j, func(w io.Writer) error {
					showJob(w, s.Folder, &j.Job, j.Attempts)
					if err := showTalk(cmd.Context(), w, s, &j.Job); err != nil {
						return err
					}
					if !mayBeRefused(j.Attempts) {
						return nil
					}
					grants, err := s.JobGrants(cmd.Context(), string(j.Job.ID))
					if err == nil {
						showGrants(w, string(j.Job.Spec.Name), &grants)
					}
					return err
				})
			})
		},
	}
	cmd.Flags().BoolVar(&answer, "answer", false, "print the whole answer of its last attempt")
	return cmd
}

// printAnswer prints what the worker of a job has said at its end: as it is into a
// file or a pipe, without what would act upon a terminal on one.
func printAnswer(ctx context.Context, con *console, s *peer, j *api.JobDetail) error {
	text, err := answerOf(ctx, s, &j.Job, j.Attempts)
	switch {
	case err != nil:
		return err
	case con.json:
		return failure(writeJSON(con.stdout, map[string]any{"job": j.Job.ID, "name": j.Job.Spec.Name, "answer": text}))
	case text == "":
		return failure(fmt.Errorf("job %s has given no answer: it is %s", j.Job.Spec.Name, stateWord(&j.Job)))
	case con.stdoutFile() != nil:
		var lines strings.Builder
		for l := range strings.Lines(text) {
			indent := l[:len(l)-len(strings.TrimLeft(l, " \t"))]
			lines.WriteString(indent + terminal.Clean(l) + "\n")
		}
		text = lines.String()
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err = io.WriteString(con.stdout, text)
	return failure(err)
}

func showJob(w io.Writer, folder func(*job.Attempt) string, e *api.Job, attempts []job.Attempt) {
	s := &e.Spec
	line := func(name, format string, args ...any) {
		if text := terminal.Clean(fmt.Sprintf(format, args...)); text != "" {
			fmt.Fprintf(w, "%-13s %s\n", name+":", text)
		}
	}
	line("job", "%s", s.Name)
	line("id", "%s", e.ID)
	fmt.Fprintf(w, "%-13s %s\n", "state:", stateOn(w, stateWord(e)))
	line("why", "%s", note(e))
	line("tenant", "%s", s.Tenant)
	line("worker", "%s", workerOf(e))
	line("model", "%s", s.Model)
	line("workspace", "%s %s", s.Workspace.Isolation, originOf(&s.Workspace))
	line("instructions", "%s", opening(s.Instructions))
	line("class", "%s", s.Class)
	line("agent", "%s", s.Agent)
	line("domain", "%s", s.Domain)
	line("correlation", "%s", s.Context.CorrelationID)
	line("user", "%s", s.Context.UserID)
	line("session", "%s", s.Context.SessionID)
	line("trigger", "%s", s.Trigger)
	line("lead", "%s", s.Lead.Job)
	line("payload", "%s", firstLine(string(s.Payload)))
	line("requeued", "%s", requeuedText(e))
	line("continued", "%s", continuedText(e))
	line("key", "%s", e.Key)
	line("needs", "%s", joinedWords(s.Flow.Needs))
	line("if", "%s", s.Flow.If)
	if a := e.Approval; a != nil && a.DecidedAt != nil {
		word := "rejected"
		if a.Approved {
			word = "approved"
		}
		line(word, "by %s on %s %s", dash(a.By), a.DecidedAt.Local().Format(time.DateTime), a.Comment)
	}
	line("output", "%s", firstLine(string(e.Result)))
	line("result of", "%s", e.CoalescedWith) // what follows are its attempts
	line("submitted", "%s", e.CreatedAt.Local().Format(time.DateTime))
	line("tokens", "%d", e.Spent.Tokens())
	line("cost", "%s", terminal.Cost(e.Spent))
	for i := range attempts {
		a := &attempts[i]
		state := a.State
		if a.Outcome != nil && a.Outcome.Checkpointed {
			state = job.Checkpointed
		}
		on := string(a.Choice.Worker)
		if a.Node != "" {
			on += ", node " + a.Node
		}
		fmt.Fprintf(w, "\nattempt %d on %s: %s\n", a.Number, on, stateOn(w, string(state)))
		if state == job.Checkpointed {
			why := firstLine(a.Outcome.Message)
			if to := a.Outcome.PreemptedBy; to != "" {
				why = "preempted by tenant " + string(to)
			}
			line("  note", "stopped between two steps (%s); does not count as an attempt", why)
		} else if a.Lost {
			line("  note", "cut short through no fault of the job; does not count as an attempt")
		}
		line("  session", "%s", a.Session)
		if o := a.Outcome; o != nil {
			if o.Class != job.NoError {
				first, more, _ := strings.Cut(o.Message, "\n")
				line("  failure", "%s: %s", o.Class, first)
				showMore(w, more)
			}
			line("  hint", "%s", o.Hint)
			if !o.StartedAt.IsZero() {
				line("  took", "%s", o.EndedAt.Sub(o.StartedAt).Round(time.Millisecond))
			}
			if h := o.Sandbox; h != nil {
				line("  sandbox", "%s", sandboxText(h))
			}
			line("  changes", "%s", o.DiffStat)
			if c := o.Commit; c != nil {
				line("  branch", "%s at %.12s", c.Branch, c.ID)
			}
			for _, art := range o.Artifacts {
				line("  "+art.Name, "%s", art.Path)
			}
			if len(o.LeftBehind) > 0 {
				line("  left behind", "%s (ended)", strings.Join(o.LeftBehind, ", "))
			}
			line("  answer", "%s", opening(o.Answer))
		}
		line("  folder", "%s", folder(a))
	}
}

// sandboxText says how an attempt was held.
func sandboxText(h *job.Holding) string {
	text := string(h.Level)
	switch {
	case h.Unrecorded:
		text = "report"
		if len(h.NotHeld) > 0 {
			text += ": " + h.NotHeld[len(h.NotHeld)-1]
		}
	case h.Report:
		text = fmt.Sprintf("report, %s would refuse %s", h.Level, count(h.Denied, "thing"))
	case h.Denied > 0:
		text += fmt.Sprintf(", refused %s", count(h.Denied, "thing"))
	}
	return text
}

// showMore prints what follows the first line of a failure, such as what a verify
// command printed: its end, since the reason mostly stands there.
func showMore(w io.Writer, text string) {
	const most = 10
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	if left := len(lines) - most; left > 0 {
		fmt.Fprintf(w, "%-13s … %s more …\n", "", count(left, "line"))
		lines = lines[left:]
	}
	for _, l := range lines {
		fmt.Fprintf(w, "%-13s %s\n", "", terminal.Clean(l))
	}
}

// requeuedText says which dead letter a job does again, and which job does it again.
func requeuedText(e *api.Job) string {
	var parts []string
	if e.RequeuedFrom != "" {
		parts = append(parts, "from "+string(e.RequeuedFrom))
	}
	if e.RequeuedAs != "" {
		parts = append(parts, "as "+string(e.RequeuedAs))
	}
	if e.DroppedAt != nil {
		parts = append(parts, "dropped on "+e.DroppedAt.Local().Format(time.DateTime))
	}
	return strings.Join(parts, ", ")
}

// continuedText says which job a job goes on from, which one goes on from it, and of which it began as a copy.
func continuedText(e *api.Job) string {
	var parts []string
	if e.ForkedFrom != "" {
		parts = append(parts, "began as a copy of "+string(e.ForkedFrom))
	}
	if e.Continues != "" {
		parts = append(parts, "goes on from "+string(e.Continues))
	}
	if e.ContinuedAs != "" {
		parts = append(parts, "goes on as "+string(e.ContinuedAs))
	}
	return strings.Join(parts, ", ")
}

// attemptFolder returns where an attempt has left its logs and artifacts, or ""
// if it said nothing and left none.
func attemptFolder(dir *statedir.Dir, a *job.Attempt) string {
	path := dir.Attempt(a.Job, a.Number)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func logsCommand(con *console, at *target) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs JOB", Short: "Print what happened in a job's runs", Args: cobra.ExactArgs(1),
		Long: `Print what happened in a job's runs. With -f go on until the job has ended, whichever
scheduler runs it and whether one does yet. The workers' raw output lies in the attempt's
folder, see ` + "`scheduler show JOB`" + `.`,
		Example: "  scheduler logs fix-login\n  scheduler logs -f fix-login\n  scheduler logs fix-login --json | jq -r 'select(.kind == \"command\") | .command'",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return at.do(func(s *peer) error {
				err := printLog(ctx, con, s, args[0], follow)
				if ctx.Err() != nil && err != nil {
					return &exitError{code: exitInterrupted}
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	con.jsonFlag(cmd, "print one JSON object an event")
	return cmd
}

// followEvery is how often a followed log is read: it is the store that is
// followed, so that it works whichever process runs the job, or none yet.
const followEvery = 200 * time.Millisecond

func printLog(ctx context.Context, con *console, s *peer, ref string, follow bool) error {
	j, err := s.Job(ctx, ref)
	if err != nil {
		return err
	}
	if follow {
		s.BePatient()
	}
	of := j.Job.ID
	if j.Job.CoalescedWith != "" {
		of = j.Job.CoalescedWith // it had no run of its own
	}
	enc := terminal.NewEncoder(con.stdout)
	attempt := 0 // of the latest event
	for after := int64(0); ; {
		// The state is read before the events: when it is terminal, all are there.
		if !j.Job.State.Terminal() {
			if j, err = s.Job(ctx, string(j.Job.ID)); err != nil {
				return err
			}
		}
		events, err := s.Events(ctx, of, after)
		if err != nil {
			return err
		}
		for i := range events {
			after = events[i].Cursor
			if con.json {
				err = enc.Encode(events[i])
			} else {
				if n := events[i].Attempt; n != attempt && attempt != 0 {
					if err = printBoundary(ctx, con.stdout, s, of, n); err != nil {
						return err
					}
				}
				attempt = events[i].Attempt
				_, err = fmt.Fprintln(con.stdout, terminal.EventLine(&events[i].Event))
			}
			if err != nil {
				return failure(err)
			}
		}
		switch {
		case len(events) > 0:
			continue
		case !follow || j.Job.State.Terminal():
			return nil
		}
		if err := pause(ctx, s.Pace()); err != nil {
			return err
		}
	}
}

// printBoundary prints where in a log another attempt begins.
func printBoundary(ctx context.Context, w io.Writer, s *peer, id job.ID, n int) error {
	j, err := s.Job(ctx, string(id))
	if err != nil {
		return err
	}
	line := fmt.Sprintf("— attempt %d", n)
	for i := range j.Attempts {
		if a := &j.Attempts[i]; a.Number == n {
			line += fmt.Sprintf(", worker %s, started %s", terminal.Clean(string(a.Choice.Worker)), a.Started.Local().Format(time.DateTime))
		}
	}
	_, err = fmt.Fprintln(w, line)
	return failure(err)
}

func cancelCommand(con *console, at *target) *cobra.Command {
	var of api.CancelKey
	cmd := &cobra.Command{
		Use: "cancel JOB...", Short: "Withdraw waiting jobs, stop running ones",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("key") {
				return nil
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		Long: `Withdraw jobs that wait, and stop those that run: their workers are told to end, and ended
with everything that they have started if they do not. What a job has changed stays in its
workspace. It works whether or not a scheduler is running. With --key, the unfinished jobs of a
tenant that have this key are cancelled, all or none.

Exit code: 0 all of them are cancelled, or about to be; 1 one is not: it has ended, or cannot
be found.`,
		Example: "  scheduler cancel fix-login\n  scheduler cancel 01a1fcce 01a1fcd0\n  scheduler cancel --key deploy-website --tenant website",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch byKey := cmd.Flags().Changed("key"); {
			case byKey && len(args) > 0:
				return usage(errors.New("--key selects the jobs itself; leave the names out"))
			case byKey && of.Key == "":
				return usage(errors.New("--key must not be empty: give the key of the jobs to cancel"))
			case cmd.Flags().Changed("tenant") && !byKey:
				return usage(errors.New("--tenant has no use without --key"))
			case byKey:
				if err := job.ValidTenant(of.Tenant); err != nil {
					return usage(fmt.Errorf("--tenant: %w", err))
				}
			}
			return at.do(func(p *peer) error {
				say := func(_ string, j *api.Job) string {
					if j.State.Terminal() {
						return fmt.Sprintf("%s: cancelled", j.Spec.Name)
					}
					return fmt.Sprintf("%s: its worker is being stopped; `scheduler show %s` tells when it is gone", j.Spec.Name, j.Spec.Name)
				}
				if of.Key == "" {
					return changeJobs(cmd.Context(), con, p, args, func(ref string) (api.JobDetail, error) { return p.Cancel(cmd.Context(), ref) }, say)
				}
				done, err := change(cmd.Context(), p, func() (api.Jobs, error) { return p.CancelKey(cmd.Context(), of) })
				switch {
				case err != nil:
					return err
				case con.json:
					return writeJSON(con.stdout, done)
				}
				for i := range done.Jobs {
					fmt.Fprintln(con.stdout, say("", &done.Jobs[i]))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&of.Key, "key", "", "cancel the unfinished jobs that have this `KEY`")
	cmd.Flags().StringVar((*string)(&of.Tenant), "tenant", string(job.DefaultTenant), "with --key: of this `TENANT`")
	con.jsonFlag(cmd, "print the jobs as JSON")
	return cmd
}
