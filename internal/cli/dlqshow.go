package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// deadLetterStory is what `dlq show --json` prints.
type deadLetterStory struct {
	api.DeadLetter
	Events []api.Event `json:"events"` // the last ones
	Stderr []string    `json:"stderr"` // the last lines of the last attempt
}

func dlqShowCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show JOB", Short: "Show a dead letter: why it was given up, its attempts, its logs", Args: cobra.ExactArgs(1),
		Long: `Show why a job was given up, with its attempts, where their logs lie and how those
end, and as what it was requeued. JOB is the id, 8 or more of its last or first characters,
or the name, of which the newest dead letter is meant.`,
		Example: "  scheduler dlq show fix-login\n  scheduler dlq show 01a1fcce --lines 50",
	}
	lines := cmd.Flags().Int("lines", 10, "show the last `N` lines of its log and of what it wrote to stderr")
	var folder func(*job.Attempt) string
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (s deadLetterStory, err error) {
		if *lines < 0 {
			return s, usage(fmt.Errorf("invalid --lines %d: use a number of 0 or more", *lines))
		}
		folder = p.Folder
		if s.DeadLetter, err = p.deadLetter(ctx, args[0]); err != nil {
			return s, err
		}
		if s.Events, err = p.lastEvents(ctx, &s.Job, *lines); err != nil {
			return s, err
		}
		s.Stderr = p.lastErrors(ctx, s.Attempts, *lines)
		return s, nil
	}, func(w io.Writer, s deadLetterStory) error { return s.print(w, folder) })
}

// deadLetter returns the dead letter that ref names, or the job that does one again.
func (p *peer) deadLetter(ctx context.Context, ref string) (api.DeadLetter, error) {
	l, err := p.DeadLetter(ctx, ref)
	refused, ok := errors.AsType[*api.Problem](err)
	switch {
	case ok && refused.Name() == "no_dead_letter":
		return l, hinted(failure(err), err, fmt.Sprintf("`scheduler show %s` shows it", ref))
	case isNotFound(err):
		letters, listErr := p.DeadLetters(ctx, client.LetterQuery{Limit: maxNames})
		if listErr != nil {
			letters = api.Jobs{} // then nobody knows what was meant
		}
		return l, meantOf(letters.Jobs, ref, hinted(failure(err), err, "`scheduler dlq ls` lists what there is"))
	}
	return l, p.refused(err)
}

// lastEvents returns the last n events of a job.
func (p *peer) lastEvents(ctx context.Context, e *api.Job, n int) ([]api.Event, error) {
	of := e.ID
	if e.CoalescedWith != "" {
		of = e.CoalescedWith // it had no run of its own
	}
	last := []api.Event{}
	for after := int64(0); ; {
		page, err := p.Events(ctx, of, after)
		if err != nil || len(page) == 0 {
			return last, err
		}
		after = page[len(page)-1].Cursor
		last = append(last, page...)
		last = last[max(0, len(last)-n):]
	}
}

// maxTail is how much of the end of a log is kept, in bytes.
const maxTail = 64 << 10

// lastErrors returns the last n lines that the last attempt wrote to stderr; none if
// they cannot be read: the file may have been cleaned away, and its path is shown in
// any case.
func (p *peer) lastErrors(ctx context.Context, attempts []job.Attempt, n int) []string {
	none := []string{}
	if len(attempts) == 0 {
		return none
	}
	a := &attempts[len(attempts)-1]
	if a.Outcome == nil {
		return none
	}
	if _, ok := a.Outcome.Artifact(job.ArtifactStderr); !ok {
		return none
	}
	file, err := p.Artifact(ctx, string(a.Job), a.Number, job.ArtifactStderr)
	if err != nil {
		return none
	}
	defer file.Close()
	var text []byte
	for chunk := make([]byte, maxTail); err == nil; {
		n, readErr := file.Read(chunk)
		text, err = append(text, chunk[:n]...), readErr
		text = text[max(0, len(text)-maxTail):]
	}
	text = bytes.TrimRight(bytes.ToValidUTF8(text, []byte("\ufffd")), "\n")
	if len(text) == 0 || !errors.Is(err, io.EOF) {
		return none
	}
	lines := strings.Split(string(text), "\n")
	return lines[max(0, len(lines)-n):]
}

func (s *deadLetterStory) print(w io.Writer, folder func(*job.Attempt) string) error {
	e := &s.Job
	showJob(w, folder, e, s.Attempts)
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n", title)
		for _, l := range lines {
			fmt.Fprintf(w, "  %s\n", terminal.Clean(l))
		}
	}
	links := func(jobs []api.Job) (lines []string) {
		for i := range jobs {
			lines = append(lines, link(&jobs[i]))
		}
		return lines
	}
	var events []string
	for i := range s.Events {
		events = append(events, terminal.EventLine(&s.Events[i].Event))
	}
	section("the end of its log", events)
	section("the end of stderr", s.Stderr)
	section("requeued from", links(s.Chain))
	section("requeued as", links(s.Next))
	switch {
	case e.DroppedAt != nil:
		fmt.Fprintf(w, "\ndropped on %s\n", e.DroppedAt.Local().Format(time.DateTime))
	case s.Settled == "":
		fmt.Fprintf(w, "\n`scheduler dlq requeue %s` runs it again, `scheduler dlq edit %s` changes it first, `scheduler dlq drop %s` gives it up for good\n", e.ID, e.ID, e.ID)
	}
	return nil
}

// link is one job of a chain in one line.
func link(e *api.Job) string {
	text := fmt.Sprintf("%s %s %s", e.ID, e.CreatedAt.Local().Format(time.DateTime), stateWord(e))
	if why := note(e); why != "" {
		text += ": " + why
	}
	return text
}
