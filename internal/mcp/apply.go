package mcp

import (
	"context"

	"github.com/agentsched/agentsched/job"
)

// Apply says which patch to bring into which tree of this host.
type Apply struct {
	Job    string `json:"job" jsonschema:"the job's name, id, or a part of that"`
	To     string `json:"to,omitempty" jsonschema:"the folder to change, on the host of this server; absent: the folder that the job was given"`
	Whole  bool   `json:"whole,omitempty" jsonschema:"with the patches of the jobs that it builds on"`
	Anyway bool   `json:"anyway,omitempty" jsonschema:"also if the job did not complete"`
}

// Applied is what applying a patch has changed.
type Applied struct {
	Job     job.ID        `json:"job"`
	Root    string        `json:"root" jsonschema:"the folder that was changed"`
	Files   []AppliedFile `json:"files" jsonschema:"what was changed, not staged; none: the job changed nothing"`
	Already bool          `json:"already,omitempty" jsonschema:"the patch was applied before"`
	// Notes are what the user is told besides.
	Notes []string `json:"notes,omitempty"`
}

// AppliedFile is a file that was changed.
type AppliedFile struct {
	Change string `json:"change" jsonschema:"added, modified or deleted"`
	Path   string `json:"path"`
}

// maxFiles is how many files a result names.
const maxFiles = 500

func addApply(s *server, role string) {
	if s.opt.Apply == nil {
		return
	}
	add(s, role, tool{name: "apply_job", role: read, effect: destroys, idempotent: true, about: "Bring a job's patch into the user's own tree on this host, as changes that are not staged. The merge is three-way; on a conflict nothing is changed."},
		func(ctx context.Context, c *call, in Apply) (Applied, error) {
			if err := needsJob(in.Job); err != nil {
				return Applied{}, err
			}
			out, err := c.server.opt.Apply(ctx, in)
			if len(out.Files) > maxFiles {
				out.Notes = append(out.Notes, "more files were changed than are listed here: git status has all")
				out.Files = out.Files[:maxFiles]
			}
			for i := range out.Files {
				out.Files[i].Path = line(out.Files[i].Path)
			}
			return out, err
		})
}
