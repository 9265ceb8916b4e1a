package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/job"
)

// editFlags say where the changed job comes from: an editor if all are empty.
type editFlags struct {
	set  []string
	file string
}

func dlqEditCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	var f editFlags
	cmd := &cobra.Command{
		Use: "edit JOB", Short: "Change a dead letter's job and run it again", Args: cobra.ExactArgs(1),
		Long: `Change what a dead letter's job says, and run it again as a new job that knows what it was
requeued from. The job opens as a job file (docs/job-file.md) in the editor that VISUAL or
EDITOR names; --set changes single fields without one. What is not right is told, the
edited file is kept, and --file goes on with it.`,
		Example: "  scheduler dlq edit 01a1fcce\n  scheduler dlq edit fix-login --set limits.timeout=2h --set model=",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.file != "" && len(f.set) > 0 {
				return usage(errors.New("--file and --set cannot be given together"))
			}
			return at.do(func(p *peer) error { return editDeadLetter(cmd.Context(), con, prog, local, p, args[0], &f) })
		},
	}
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "`FIELD=VALUE`: change this field, e.g. limits.timeout=2h; without a value remove it")
	cmd.Flags().StringVar(&f.file, "file", "", "take the job from this job `FILE`")
	con.jsonFlag(cmd, "print the new job as JSON")
	return cmd
}

func editDeadLetter(ctx context.Context, con *console, prog *program, local *local, p *peer, ref string, f *editFlags) error {
	letters, err := p.chosen(ctx, []string{ref})
	if err != nil {
		return err
	}
	letter := &letters[0]
	if letter.Spec.Type == job.External {
		return usage(fmt.Errorf("job %s (%s) is external, which no job file can say; enqueue it anew on the socket", letter.ID, letter.Spec.Name))
	}
	path, temporary, err := editedFile(ctx, con, letter, f)
	if err != nil || path == "" {
		return err
	}
	spec, err := prog.readEdited(path, temporary, &letter.Spec)
	if err == nil {
		err = requeue(ctx, con, prog, local, p, api.Requeue{Letters: []api.RequeueLetter{{ID: letter.ID, Spec: spec}}})
	}
	switch {
	case temporary && err != nil:
		return hinted(err, err, fmt.Sprintf("the edited file is kept: `scheduler dlq edit %s --file %s` goes on with it", letter.ID, path))
	case temporary:
		os.Remove(path) // what is left behind harms nobody
	}
	return err
}

// editedFile returns the path of the job file to do again, and whether it is
// one of ours; "" if the user changed nothing.
func editedFile(ctx context.Context, con *console, letter *api.Job, f *editFlags) (path string, temporary bool, err error) {
	if f.file != "" {
		path, err := filepath.Abs(f.file)
		if err != nil {
			return "", false, usage(err)
		}
		return path, false, nil
	}
	file, err := newJobFile(&letter.Spec, utcNow())
	if err != nil {
		return "", false, failure(err)
	}
	for _, s := range f.set {
		if err := file.set(s); err != nil {
			return "", false, usage(err)
		}
	}
	text, err := file.bytes()
	if err != nil {
		return "", false, failure(err)
	}
	if len(f.set) == 0 {
		text = append(fmt.Appendf(nil, "# Dead letter %s\n# %s\n", letter.ID, firstLine(letter.DeadLetter)), text...)
	}
	if path, err = writeTemp(string(letter.Spec.Name), text); err != nil {
		return "", false, failure(err)
	}
	if len(f.set) > 0 {
		return path, true, nil
	}
	if err := con.edit(ctx, path); err != nil {
		os.Remove(path)
		return "", false, err
	}
	edited, err := os.ReadFile(path)
	if err != nil {
		return "", false, failure(fmt.Errorf("read the edited job: %w", err))
	}
	if bytes.Equal(edited, text) {
		os.Remove(path)
		fmt.Fprintf(con.stderr, "nothing was changed; `scheduler dlq requeue %s` runs it again as it was\n", letter.ID)
		return "", false, nil
	}
	return path, true, nil
}

func writeTemp(name string, text []byte) (string, error) {
	f, err := os.CreateTemp("", name+"-*.yaml")
	if err != nil {
		return "", fmt.Errorf("make a file to edit: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("write the job to edit: %w", err)
	}
	return f.Name(), nil
}

// edit opens the file in the user's editor and waits for its end.
func (con *console) edit(ctx context.Context, path string) error {
	editor := con.getenv("VISUAL")
	if editor == "" {
		editor = con.getenv("EDITOR")
	}
	if editor == "" {
		return usage(errors.New("neither VISUAL nor EDITOR names an editor"), "set one, e.g. EDITOR=vi, or change single fields with --set FIELD=VALUE")
	}
	// The variable may hold arguments, so that a shell takes it apart.
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$@"`, editor, path)
	cmd.Env = con.environ
	cmd.Stdin, cmd.Stdout, cmd.Stderr = io.Reader(con.stdin), con.stdout, con.stderr
	if err := cmd.Run(); err != nil {
		return usage(fmt.Errorf("editor %q: %w; nothing was requeued", editor, err))
	}
	return nil
}

// readEdited reads the one job of a job file by the rules of a submission. What
// a job file cannot say is as it was.
func (prog *program) readEdited(path string, temporary bool, was *job.Spec) (*job.Spec, error) {
	cfg, err := prog.loadConfig()
	if err != nil {
		return nil, err
	}
	opts := jobfile.Options{Now: utcNow(), Workers: prog.workerKinds(&cfg), Domains: domains(&cfg), Grants: cfg.Grants}
	of := was.Workspace.Parcel
	if of != (job.Parcel{}) {
		opts.Parcels = map[string]job.Parcel{parcelPath(&of): of}
	}
	if temporary {
		opts.BaseDir = "." // a relative path is from where the user is
	}
	specs, err := jobfile.Load(path, opts)
	if err != nil {
		return nil, usage(err)
	}
	if len(specs) != 1 {
		return nil, usage(fmt.Errorf("%s has %d jobs: it must hold the one that runs again", path, len(specs)))
	}
	spec := &specs[0]
	spec.Trigger = was.Trigger
	if of != (job.Parcel{}) && spec.Workspace.Parcel.Digest == of.Digest {
		spec.Workspace.Parcel = of
	}
	return spec, nil
}
