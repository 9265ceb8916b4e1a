package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// fileRequest is a file that the agent wants read or written.
type fileRequest struct {
	request json.RawMessage // its id
	path    string
	line    int // to read from, 1 is the first
	limit   int // lines to read; negative: all
	write   bool
	data    []byte // to write
}

// readFile reads a file for the agent. The files of the workspace are those of a job that
// may read or edit; another one is asked about.
func (s *session) readFile(id, params json.RawMessage) {
	var p struct {
		Path        string
		Line, Limit *int
	}
	if !agentcli.Decode(params, &p) || p.Path == "" {
		s.refuse(id, codeInvalidParams, "a path is missing")
		return
	}
	f := &fileRequest{request: id, path: p.Path, line: 1, limit: -1}
	if p.Line != nil {
		f.line = max(*p.Line, 1)
	}
	if p.Limit != nil {
		f.limit = max(*p.Limit, 0)
	}
	if s.task.Can(job.CanRead) || s.task.Can(job.CanEdit) {
		s.start(f)
		return
	}
	s.askFile(f, worker.Question{Kind: worker.AboutRead, Tool: acp.ClientMethodFsReadTextFile, Text: "read "})
}

// writeFile writes a file for the agent, if its job may edit or a person lets it.
func (s *session) writeFile(id, params json.RawMessage) {
	var p struct {
		Path    string
		Content *string
	}
	if !agentcli.Decode(params, &p) || p.Path == "" || p.Content == nil {
		s.refuse(id, codeInvalidParams, "a path or the content is missing")
		return
	}
	f := &fileRequest{request: id, path: p.Path, write: true, data: []byte(*p.Content)}
	name := s.Relative(s.absolute(p.Path))
	if s.task.Can(job.CanEdit) || s.mayWrite[name] {
		delete(s.mayWrite, name)
		s.start(f)
		return
	}
	s.askFile(f, worker.Question{Kind: worker.AboutWrite, Tool: acp.ClientMethodFsWriteTextFile, Text: "write ", Diff: diff(p.Path, "", *p.Content)})
}

// askFile asks whether a file may be read or written.
func (s *session) askFile(f *fileRequest, q worker.Question) {
	if s.stop != notStopped || s.phase == ending || len(f.path) > 4096 {
		s.refuse(f.request, codeInternal, "it is not allowed now")
		return
	}
	q.Path = s.Relative(s.absolute(f.path))
	q.Text, _ = job.Cut(q.Text+q.Path+"?", agentcli.MaxMessage)
	q.Input, _ = json.Marshal(map[string]string{"path": q.Path}) // a map of strings
	q.Decisions = []worker.Decision{worker.Allow, worker.Deny, worker.DenyAndStop}
	s.ask("file-"+string(f.request), &ask{request: f.request, file: f, what: what(q)}, q)
}

// start has the driver read or write a file.
func (s *session) start(f *fileRequest) {
	s.asked++
	id := fmt.Sprintf("file-%d", s.asked)
	s.files[id] = f
	if !f.write {
		s.do(worker.ReadFile{ID: id, Path: f.path})
		return
	}
	s.do(worker.WriteFile{ID: id, Path: f.path, Data: f.data})
	f.data = nil
}

// fileDone tells the agent what became of a file.
func (s *session) fileDone(in worker.FileDone) {
	f := s.files[in.ID]
	if f == nil {
		return
	}
	delete(s.files, in.ID)
	switch {
	case errors.Is(in.Err, fs.ErrNotExist):
		s.refuse(f.request, codeResourceNotFound, in.Err.Error())
	case in.Err != nil:
		s.refuse(f.request, codeInternal, in.Err.Error())
	case f.write:
		name := s.Relative(s.absolute(f.path))
		delete(s.wrote, name)
		s.changed("edit", path{name: f.path, created: in.Created})
		if len(s.wrote) < maxCalls {
			s.wrote[name] = true
		}
		s.grant(f.request, acp.WriteTextFileResponse{})
	case !utf8.Valid(in.Data):
		s.refuse(f.request, codeInternal, fmt.Sprintf("read %q: it is not UTF-8 text", f.path))
	default:
		s.grant(f.request, acp.ReadTextFileResponse{Content: string(part(in.Data, f.line, f.limit))})
	}
}

// part returns the lines of data from line on, which counts from 1, at most limit of them.
func part(data []byte, line, limit int) []byte {
	if line <= 1 && limit < 0 {
		return data
	}
	lines := slices.Collect(bytes.Lines(data))
	lines = lines[min(line-1, len(lines)):]
	if limit >= 0 {
		lines = lines[:min(limit, len(lines))]
	}
	return bytes.Join(lines, nil)
}
