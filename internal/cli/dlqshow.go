package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// letterStory is what `dlq show --json` prints.
type letterStory struct {
	Job      api.Job       `json:"job"`
	Attempts []job.Attempt `json:"attempts"`
	Chain    []api.Job     `json:"chain"`  // what it was requeued from, the first one first
	Next     []api.Job     `json:"next"`   // what it was requeued as
	Events   []api.Event   `json:"events"` // the last ones
	Stderr   []string      `json:"stderr"` // the last lines of the last attempt
	open     bool          // it waits for somebody
}

func (m *Main) dlqShowCommand() *cobra.Command {
	var asJSON bool
	var lines int
	cmd := &cobra.Command{
		Use: "show JOB", Short: "Show a dead letter: why it was given up, its attempts, its logs", Args: cobra.ExactArgs(1),
		Long: `Show why a job was given up, with its attempts, where their logs lie and how those
end, and as what it was requeued. JOB is the id, 8 or more of its last or first characters,
or the name, of which the newest dead letter is meant.`,
		Example: "  scheduler dlq show fix-login\n  scheduler dlq show 01a1fcce --lines 50",
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < 0 {
				return usage(fmt.Errorf("--lines %d: want a number of 0 or more", lines))
			}
			dir, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			s, err := tellStory(cmd.Context(), store, args[0], lines)
			if err != nil {
				return err
			}
			if asJSON {
				return failure(writeJSON(m.stdout, s))
			}
			s.print(m.out(), dir)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&lines, "lines", 10, "show the last `N` lines of its log and of what it wrote to stderr")
	return cmd
}

// tellStory reads what is known of the dead letter that ref means, or of the job
// that does one again.
func tellStory(ctx context.Context, store queue.Reader, ref string, lines int) (*letterStory, error) {
	e, err := findLetter(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	if !scheduler.IsDeadLetter(&e) && e.RequeuedFrom == "" {
		err := fmt.Errorf("job %s (%s) is %s, not a dead letter", e.ID, e.Spec.Name, scheduler.StatusOf(&e, time.Now()).State)
		return nil, &exitError{code: exitFailed, err: err, hints: []string{fmt.Sprintf("`scheduler show %s` shows it", e.ID)}}
	}
	s := &letterStory{Job: stored(e)[0], Attempts: []job.Attempt{}, Next: []api.Job{}, open: scheduler.WaitsForSomebody(&e) == nil}
	if s.Attempts, err = store.Attempts(ctx, e.ID); err != nil {
		return nil, failure(err)
	}
	chain, err := scheduler.Chain(ctx, store, &e)
	if err != nil {
		return nil, failure(err)
	}
	s.Chain = stored(chain...)
	for next := e.RequeuedAs; next != ""; {
		n, err := store.Get(ctx, next)
		if err != nil {
			return nil, failure(fmt.Errorf("look for what job %s was requeued as: %w", e.ID, err))
		}
		s.Next = append(s.Next, stored(n)...)
		next = n.RequeuedAs
	}
	if s.Events, err = lastEvents(ctx, store, &e, lines); err != nil {
		return nil, failure(err)
	}
	s.Stderr = s.stderr(lines)
	return s, nil
}

// lastEvents returns the last n events of a job.
func lastEvents(ctx context.Context, store queue.Reader, e *queue.Entry, n int) ([]api.Event, error) {
	of := e.ID
	if e.CoalescedWith != "" {
		of = e.CoalescedWith // it had no run of its own
	}
	last := []api.Event{}
	for after := int64(0); ; {
		page, err := store.Events(ctx, of, after, 1000)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return last, nil
		}
		after = page[len(page)-1].Cursor
		last = append(last, server.EventsOf(page)...)
		last = last[max(0, len(last)-n):]
	}
}

// maxTail is how much of the end of a log is looked at, in bytes.
const maxTail = 64 << 10

// stderr returns the last n lines that the last attempt wrote to stderr.
func (s *letterStory) stderr(n int) []string {
	if len(s.Attempts) == 0 || s.Attempts[len(s.Attempts)-1].Outcome == nil {
		return []string{}
	}
	a, ok := s.Attempts[len(s.Attempts)-1].Outcome.Artifact(job.ArtifactStderr)
	if !ok {
		return []string{}
	}
	return tail(a, n)
}

// tail returns the last n lines of a file; none if it cannot be read: it may
// have been cleaned away, and the path is shown in any case.
func tail(a job.Artifact, n int) []string {
	f, err := statedir.OpenArtifact(a)
	if err != nil {
		return []string{}
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return []string{}
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, size-maxTail), maxTail))
	if err != nil {
		return []string{}
	}
	text = bytes.TrimRight(bytes.ToValidUTF8(text, []byte("\ufffd")), "\n")
	if len(text) == 0 {
		return []string{}
	}
	lines := strings.Split(string(text), "\n")
	return lines[max(0, len(lines)-n):]
}

func (s *letterStory) print(w io.Writer, dir *statedir.Dir) {
	e := &s.Job
	showJob(w, func(a *job.Attempt) string { return attemptFolder(dir, a) }, e, s.Attempts)
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n", title)
		for _, l := range lines {
			fmt.Fprintf(w, "  %s\n", terminal.Clean(l))
		}
	}
	var events []string
	for i := range s.Events {
		events = append(events, terminal.EventLine(&s.Events[i].Event))
	}
	section("the end of its log", events)
	section("the end of stderr", s.Stderr)
	var chain []string
	for i := range s.Chain {
		chain = append(chain, link(&s.Chain[i]))
	}
	section("requeued from", chain)
	chain = nil
	for i := range s.Next {
		chain = append(chain, link(&s.Next[i]))
	}
	section("requeued as", chain)
	switch {
	case e.DroppedAt != nil:
		fmt.Fprintf(w, "\ndropped on %s\n", e.DroppedAt.Local().Format(time.DateTime))
	case s.open:
		fmt.Fprintf(w, "\n`scheduler dlq requeue %s` does it again, `scheduler dlq edit %s` does it otherwise, `scheduler dlq drop %s` lets it be\n", e.ID, e.ID, e.ID)
	}
}

// link is one job of a chain in one line.
func link(e *api.Job) string {
	text := fmt.Sprintf("%s %s %s", e.ID, e.CreatedAt.Local().Format(time.DateTime), stateWord(e))
	if why := note(e); why != "" {
		text += ": " + why
	}
	return text
}
