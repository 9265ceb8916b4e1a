package agentcore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// parcelStore is the scheduler's side of read_parcel: its pieces are small.
type parcelStore map[string][]byte

func (p parcelStore) read(params json.RawMessage) (any, error) {
	var r ipc.ReadParcel
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, err
	}
	text, ok := p[r.Digest]
	if !ok {
		return nil, fmt.Errorf("no parcel %s", r.Digest)
	}
	from := min(r.Offset, int64(len(text)))
	return ipc.ReadParcelResult{Data: text[from:min(from+100, int64(len(text)))], Size: int64(len(text))}, nil
}

// packed returns the parcel of a folder with one file.
func packed(t *testing.T, text string) (job.Parcel, []byte) {
	t.Helper()
	dir := t.TempDir()
	repo := filepath.Join(dir, "repo")
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "-C", repo, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(repo, "file"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &travel.Packer{Workspaces: workspace.New(workspace.Config{Root: dir + "/w", Locks: dir + "/l", Log: zerolog.Nop()}), Temp: dir + "/temp"}
	packed, err := p.Pack(t.Context(), repo, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := packed.File()
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return job.Parcel{Digest: f.Digest, Repository: string(packed.Key("")), Base: packed.Base, Commit: packed.Commit}, content
}

// TestParcel: a core makes the workspace of what it reads in pieces, once, and believes
// none that is another than its job names.
func TestParcel(t *testing.T) {
	of, content := packed(t, "hello\n")
	c := start(t)
	c.parcels = parcelStore{of.Digest: content}
	c.hello()
	c.configure(nil)
	run := func(id job.ID, p job.Parcel) *job.Outcome {
		t.Helper()
		s := spec("cat file", nil)
		s.Workspace = job.Workspace{Isolation: job.Worktree, Parcel: p}
		c.run(id, s)
		o := c.outcome()
		return &o
	}
	sum := func(text []byte) string { s := sha256.Sum256(text); return hex.EncodeToString(s[:]) }
	changed := bytes.Clone(content)
	changed[len(changed)-1] ^= 1 // the pack's own checksum
	for _, x := range []struct {
		name job.ID
		text []byte
		of   func(*job.Parcel)
		want string
	}{
		{"truncated", content[:len(content)-1], func(*job.Parcel) {}, "has the SHA-256"},
		{"changed", changed, func(*job.Parcel) {}, "has the SHA-256"},
		{"corrupt", changed, func(p *job.Parcel) { p.Digest = sum(changed) }, "announced was"},
		{"other", content, func(p *job.Parcel) { p.Commit = strings.Repeat("0", 40) }, "is not what the job names"},
		{"foreign", content, func(p *job.Parcel) { p.Repository = strings.Repeat("0", 64) }, "is not what the job names"},
	} {
		p := of
		x.of(&p)
		c.parcels = parcelStore{p.Digest: x.text}
		if o := run(x.name, p); o.State != job.RunFailed || !strings.Contains(o.Message, x.want) {
			t.Errorf("%s: %s, %q, want %q", x.name, o.State, o.Message, x.want)
		}
	}
	c.parcels = parcelStore{}
	if o := run("away", of); o.Class != job.Network {
		t.Errorf("a scheduler that has none now: %s, %q", o.Class, o.Message)
	}
	c.parcels = parcelStore{of.Digest: content}
	if o := run("first", of); !o.Succeeded() || o.Answer != "hello" {
		t.Errorf("%+v", o)
	}
	head, _, _ := bytes.Cut(content, []byte("\n"))
	c.parcels = parcelStore{of.Digest: append(head, '\n')} // the rest is in the mirror
	if o := run("second", of); !o.Succeeded() || o.Answer != "hello" {
		t.Errorf("%+v", o)
	}
	c.end()
}
