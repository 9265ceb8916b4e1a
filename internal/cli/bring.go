package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/job"
)

// bringer brings folders of this host to a scheduler elsewhere.
type bringer struct {
	con     *console
	peer    *peer
	packer  *travel.Packer
	brought map[string]job.Parcel // by their paths
}

// bring brings along the folders that job files have worktrees of, and names them in the
// files.
func (p *peer) bring(ctx context.Context, con *console, files []api.JobFile) error {
	temp, err := os.MkdirTemp("", "agentsched-")
	if err != nil {
		return failure(err)
	}
	defer os.RemoveAll(temp)
	b := &bringer{con: con, peer: p, brought: map[string]job.Parcel{}, packer: &travel.Packer{Workspaces: ownWorkspaces(temp), Temp: filepath.Join(temp, "parcels")}}
	for i := range files {
		f := &files[i]
		folders, err := jobfile.Travelling(f.Name, []byte(f.Text), f.Dir)
		if err != nil {
			return usage(err)
		}
		for _, folder := range folders {
			parcel, err := b.bring(ctx, folder)
			if err != nil {
				return err
			}
			if f.Parcels == nil {
				f.Parcels = map[string]job.Parcel{}
			}
			f.Parcels[folder] = parcel
		}
	}
	return nil
}

// ownWorkspaces looks at folders of this host, and changes them, where there is no state
// directory: what it needs for that is in a folder that goes.
func ownWorkspaces(temp string) *workspace.Manager {
	dir := statedir.At(temp, "")
	return workspace.New(workspace.Config{Root: dir.Work(), Locks: dir.Locks(), Folders: dir.Folders(), Log: zerolog.Nop()})
}

// bring packs a folder, once, and sends what the scheduler has not.
func (b *bringer) bring(ctx context.Context, folder string) (job.Parcel, error) {
	if p, done := b.brought[folder]; done {
		return p, nil
	}
	id, err := b.packer.Identify(ctx, folder)
	if err != nil {
		return job.Parcel{}, usage(err)
	}
	packed, err := b.pack(ctx, folder, id)
	if err != nil {
		return job.Parcel{}, err
	}
	defer packed.Close() //nolint:errcheck // its folder goes as a whole
	sub := packed.Sub
	packed.Sub = "" // one parcel for all folders of the repository
	digest, sent, err := b.send(ctx, packed, string(id.Key("")))
	if err != nil {
		return job.Parcel{}, err
	}
	b.tell(folder, packed, sent)
	p := job.Parcel{Digest: digest, Sub: sub}
	b.brought[folder] = p
	return p, nil
}

// thinEnough reports whether a bundle is worth building on another one: one that has grown
// by half is packed anew, for those that follow.
func thinEnough(thin, whole int64) bool { return thin < 8<<20 || thin < whole/2 }

// pack packs a folder on top of what the scheduler has of its repository, or whole.
func (b *bringer) pack(ctx context.Context, folder string, id travel.Identity) (*travel.Packed, error) {
	whole, err := b.peer.Parcels(ctx, string(id.Key("")), "")
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Status == http.StatusNotFound {
		return nil, usage(fmt.Errorf("the scheduler takes no folders of other hosts: %w", err), "with --there, "+folder+" is one of its host; or upgrade it")
	}
	if err != nil {
		return nil, b.peer.refused(err)
	}
	if len(whole) > 0 && whole[0].Base != "" {
		packed, err := b.packer.Pack(ctx, folder, []string{whole[0].Commit, whole[0].Base})
		if err != nil {
			return nil, usage(err)
		}
		if packed.Size == 0 || len(packed.Prerequisites) > 0 && thinEnough(packed.Size, whole[0].Size) {
			packed.On = whole[0].Digest
			return packed, nil
		}
		if err := packed.Close(); err != nil {
			return nil, failure(err)
		}
	}
	packed, err := b.packer.Pack(ctx, folder, nil)
	if err != nil {
		return nil, usage(err)
	}
	return packed, nil
}

// send sends a parcel, unless the scheduler has one of the same commit, and returns its
// digest and how many bytes were sent.
func (b *bringer) send(ctx context.Context, packed *travel.Packed, repository string) (digest string, sent int64, err error) {
	have, err := b.peer.Parcels(ctx, repository, packed.Commit)
	if err != nil {
		return "", 0, b.peer.refused(err)
	}
	if len(have) > 0 {
		return have[0].Digest, 0, nil
	}
	file, err := packed.File()
	if err != nil {
		return "", 0, failure(err)
	}
	content, err := file.Open()
	if err != nil {
		return "", 0, failure(err)
	}
	defer content.Close()
	if _, err := b.peer.PutParcel(ctx, file.Digest, content, file.Size); err != nil {
		return "", 0, mends(b.peer.refused(err))
	}
	return file.Digest, file.Size, nil
}

// tell says what goes along, and what stays here.
func (b *bringer) tell(folder string, p *travel.Packed, sent int64) {
	var what string
	switch {
	case p.Base == "":
		what = "without a commit"
	case p.Base == p.Commit:
		what = fmt.Sprintf("at commit %.7s", p.Base)
	default:
		what = fmt.Sprintf("at commit %.7s, with what is not committed", p.Base)
	}
	size := "the scheduler has it already"
	if sent > 0 {
		size = sizeText(sent) + " sent"
	}
	fmt.Fprintf(b.con.stderr, "brought along: %s %s; %s; ignored files stay here\n", terminal.Visible(folder, ""), what, size)
	for _, w := range p.Warnings {
		fmt.Fprintf(b.con.stderr, "not brought along: %s\n", terminal.Visible(w, ""))
	}
}
