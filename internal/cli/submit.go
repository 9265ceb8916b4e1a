package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/jobfile"
)

// submission is what `submit` was given.
type submission struct {
	args  []string // paths of job files, or the words of the instructions
	one   oneJob
	stdin string // the text that - stands for; "" none
	key   string // --idempotency-key
	there bool   // --there
}

// fromStdin is the argument that stands for standard input.
const fromStdin = "-"

func submitCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	var in submission
	var o runOptions
	var wait bool
	cmd := &cobra.Command{
		Use:   "submit FILE... | submit - | submit --worker WORKER [flags] INSTRUCTIONS",
		Short: "Give jobs to the scheduler that is running",
		Long: `Give the jobs of one or more job files, or the one of the command line, to the
scheduler that is running on the state directory, and return when they are
durable. It works on them beside its own jobs, and its end waits for theirs.
With - a job file is read from standard input; with --worker and - the instructions are.

With --wait it goes on until the jobs have ended and shows how they fare, as run does.
Ctrl-C ends the wait; the jobs go on.

With --server the scheduler reads the text of the files on its own host. Folders of this host
that are workspaces in a git repository go along, as they are, with what is not committed;
ignored files, submodules and contents of Git LFS do not. A folder that is not here, or
with --there, is one of the scheduler's host. Files that a job file names, in instructions
or agents_file, are read here and sent with it.

A job with a key and on_duplicate says what happens when an unfinished job has
the same key: docs/job-file.md. An --idempotency-key is about the whole submission:
given again with the same key, nothing is submitted and the jobs of the first are printed.

Exit code: 0 the jobs are durable, with --wait: all completed; 1 it failed, with --wait: a
job failed; 2 something is not right and nothing was submitted; 130 the wait was interrupted.`,
		Example: `  scheduler submit more.yaml
  scheduler submit --worker codex --workspace . "Fix the failing test"
  git diff | scheduler submit --worker claude --isolation none -
  generate-jobs | scheduler submit --wait -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(errors.New("no jobs were given"), "name a job file: scheduler submit FILE", "or one job: scheduler submit --worker codex \"…\"")
			}
			if err := in.one.misplaced(cmd.Flags()); err != nil {
				return err
			}
			in.args = args
			if err := in.readStdin(con.stdin); err != nil {
				return err
			}
			return at.do(func(p *peer) error { return submit(cmd.Context(), con, prog, local, p, in, wait, o) })
		},
	}
	in.one.flags(cmd.Flags())
	cmd.Flags().StringVar(&in.key, "idempotency-key", "", "`KEY` of this submission: given twice, it is submitted once")
	cmd.Flags().BoolVar(&in.there, "there", false, "with --server: workspaces are folders of the scheduler's host, also those that are here")
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "go on until the jobs have ended, and show how they fare")
	cmd.Flags().BoolVar(&o.paths, "paths", false, "with --wait: "+pathsUsage)
	cmd.Flags().BoolVar(&o.plain, "plain", false, "with --wait: print plain lines, also on a terminal")
	con.jsonFlag(cmd, "print the jobs as JSON; with --wait everything that happens as JSON Lines")
	return cmd
}

// maxStdin is how large a text from standard input may be.
const maxStdin = 64 << 20

// readStdin reads what - stands for, if it was given.
func (in *submission) readStdin(stdin *os.File) error {
	switch {
	case !slices.Contains(in.args, fromStdin):
		return nil
	case len(in.args) > 1:
		return usage(errors.New("- stands for all of it: give neither files nor words beside it"))
	case stdin == nil:
		return usage(errors.New("- was given, and there is no standard input"))
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxStdin+1))
	switch {
	case err != nil:
		return failure(fmt.Errorf("read standard input: %w", err))
	case len(text) > maxStdin:
		return usage(fmt.Errorf("standard input is larger than %s", sizeText(maxStdin)))
	case strings.TrimSpace(string(text)) == "":
		return usage(errors.New("standard input is empty: it must hold a job file, or with --worker the instructions"))
	}
	in.stdin = string(text)
	if in.one.worker != "" {
		in.args, in.stdin = []string{strings.TrimRight(in.stdin, "\n")}, ""
	}
	return nil
}

// read reads the jobs as this host's configuration understands them.
func (in *submission) read(prog *program, cfg *config.Config) (*source, error) {
	if in.stdin == "" {
		return prog.readJobs(in.args, in.one, cfg)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, usage(err)
	}
	jobs, err := jobfile.DecodeJobs("standard input", []byte(in.stdin), jobfile.Options{Now: utcNow(), Workers: prog.workerKinds(cfg), Domains: domains(cfg), Grants: cfg.Grants, BaseDir: dir})
	if err != nil {
		return nil, usage(err)
	}
	return &source{name: "standard input in " + dir, specs: jobs.Specs, workflow: jobs.Workflow}, nil
}

// texts returns the job files as another host is to read them.
func (in *submission) texts() ([]api.JobFile, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, usage(err)
	}
	switch {
	case in.one.worker != "":
		text, err := in.one.text(strings.Join(in.args, " "))
		return []api.JobFile{{Name: commandLine, Dir: dir, Text: string(text)}}, err
	case in.stdin != "":
		named, err := jobfile.Attach("standard input", []byte(in.stdin), dir)
		if err != nil {
			return nil, usage(err)
		}
		return []api.JobFile{{Name: "standard input", Dir: dir, Text: in.stdin, Files: named}}, nil
	}
	var files []api.JobFile
	for _, arg := range in.args {
		path, err := filepath.Abs(arg)
		if err != nil {
			return nil, usage(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, usage(err)
		}
		named, err := jobfile.Attach(arg, text, filepath.Dir(path))
		if err != nil {
			return nil, usage(err)
		}
		files = append(files, api.JobFile{Name: arg, Dir: filepath.Dir(path), Text: string(text), Files: named})
	}
	return files, nil
}

// submitTexts sends the text of the job files: the scheduler reads it on its own host,
// one file after the other, so that those before one that is refused stay.
func (p *peer) submitTexts(ctx context.Context, con *console, in submission) (all []api.Job, err error) {
	files, err := in.texts()
	if err != nil {
		return nil, err
	}
	if !in.there {
		if err := p.bring(ctx, con, files); err != nil {
			return nil, err
		}
	}
	for i, f := range files {
		key := in.key
		if key != "" && i > 0 {
			key = fmt.Sprintf("%s-%d", in.key, i+1)
		}
		jobs, err := p.SubmitFile(ctx, f, withKey(key)...)
		if all = append(all, jobs.Jobs...); err != nil {
			return all, mends(p.refused(inFileItself(err)))
		}
	}
	return all, nil
}

// inFileItself returns the mistakes of a job file as they are told where it is read: by
// its name and line, and not by the field of the request that it came in.
func inFileItself(err error) error {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || len(p.Errors) != 1 || p.Errors[0].Location != "body.text" {
		return err
	}
	plain := *p
	plain.Detail = p.Errors[0].Message
	return &plain
}

// submitJobs sends the jobs of files that are read on this host.
func submitJobs(ctx context.Context, prog *program, local *local, p *peer, in submission) ([]api.Job, error) {
	cfg, err := prog.loadConfig()
	if err != nil {
		return nil, err
	}
	src, err := in.read(prog, &cfg)
	if err != nil {
		return nil, err
	}
	if err := local.checkJobs(ctx, src.specs, &cfg, nil); err != nil {
		return nil, err
	}
	if err := prog.checkPipelines(&src.workflow, src.specs, &cfg); err != nil {
		return nil, err
	}
	digest, err := src.digest()
	if err != nil {
		return nil, err
	}
	jobs, err := change(ctx, p, func() (api.Jobs, error) {
		return p.Submit(ctx, api.Submission{Source: submittedPrefix + src.name, Digest: digest, Jobs: src.specs, Workflow: src.workflow}, withKey(in.key)...)
	})
	return jobs.Jobs, hinted(mends(err), client.ErrNotRunning, "`scheduler run FILE` runs the jobs and ends with them")
}

// withKey is what goes along with a submission that has a key.
func withKey(key string) []client.SubmitOption {
	if key == "" {
		return nil
	}
	return []client.SubmitOption{client.WithKey(key)}
}

func submit(ctx context.Context, con *console, prog *program, local *local, p *peer, in submission, wait bool, o runOptions) error {
	jobs, err := []api.Job(nil), error(nil)
	if p.offline == nil {
		jobs, err = p.submitTexts(ctx, con, in)
	} else {
		jobs, err = submitJobs(ctx, prog, local, p, in)
	}
	if err != nil {
		return err
	}
	switch {
	case wait:
		if !con.json {
			fmt.Fprintf(con.stderr, "%s submitted\n", count(len(jobs), "job"))
		}
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return waitForBatches(ctx, con, p, jobs, o)
	case con.json:
		return failure(writeJSON(con.stdout, api.Jobs{Jobs: append([]api.Job{}, jobs...), Total: len(jobs)}))
	}
	for _, e := range jobs {
		fmt.Fprintf(con.stdout, "%s  %s\n", e.ID, e.Spec.Name)
	}
	fmt.Fprintf(con.stderr, "%s submitted\n", count(len(jobs), "job"))
	return nil
}
