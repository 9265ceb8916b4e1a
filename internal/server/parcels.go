package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/job"
)

// parcels takes in folders of submitters.
type parcels struct {
	keeper *parcel.Keeper // nil: there are none
}

const binaryType = "application/octet-stream"

func (p parcels) routes(r *router) {
	upload(r, route{id: "put-parcel", method: "PUT", path: "/v1/parcels/{digest}", role: submit, tag: "parcels", status: http.StatusCreated, body: parcel.MaxFile,
		about: "Keep a folder, as `scheduler submit` packs it, for jobs whose workspace it is.\nIts name is the SHA-256 of what is sent, so that the same can be sent again. It goes when no job names it any more, an hour after its last use at the earliest."}, p.put)
	get(r, route{id: "get-parcel", method: "GET", path: "/v1/parcels/{digest}", role: read, tag: "parcels",
		about: "Say whether a folder is kept, and note that it is about to be used."}, p.get)
	get(r, route{id: "list-parcels", method: "GET", path: "/v1/parcels", role: read, tag: "parcels",
		about: "List what a new parcel of a repository may build on, or be in place of: of those that are kept with the whole history, or with a commit, the one that was used last."}, p.list)
}

type parcelPath struct {
	Digest string `path:"digest" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the parcel, 64 hexadecimal digits"`
}

func (p parcels) put(ctx context.Context, in *parcelPath, body io.Reader) (out api.Parcel, err error) {
	if p.keeper == nil {
		return out, fmt.Errorf("parcels: %w", errNoSuch)
	}
	kept, err := p.keeper.Take(ctx, in.Digest, body)
	return parcelOf(&kept), err
}

func (p parcels) get(ctx context.Context, in *parcelPath) (out api.Parcel, err error) {
	if p.keeper == nil {
		return out, fmt.Errorf("parcels: %w", errNoSuch)
	}
	kept, err := p.keeper.Use(ctx, in.Digest)
	return parcelOf(&kept), err
}

type parcelQuery struct {
	Repository string `query:"repository" required:"true" pattern:"^[0-9a-f]{64}$" doc:"names the repository: repository of a parcel of it"`
	Commit     string `query:"commit" pattern:"^([0-9a-f]{40}|[0-9a-f]{64})$" doc:"lists what has this commit, in place of what has the whole history"`
}

func (p parcels) list(ctx context.Context, in *parcelQuery) (out api.Parcels, err error) {
	if p.keeper == nil {
		return out, fmt.Errorf("parcels: %w", errNoSuch)
	}
	kept, err := p.keeper.Newest(ctx, in.Repository, in.Commit)
	switch {
	case isUnknown(err):
		return api.Parcels{Parcels: []api.Parcel{}}, nil
	case err != nil:
		return out, err
	}
	return api.Parcels{Parcels: []api.Parcel{parcelOf(&kept)}}, nil
}

// complete fills in what the jobs' workspaces say of their parcels.
func (p parcels) complete(ctx context.Context, jobs []job.Spec) error {
	for i := range jobs {
		if jobs[i].Workspace.Parcel == (job.Parcel{}) {
			continue
		}
		if p.keeper == nil {
			return badField(at("body.jobs", i)+".workspace.parcel", "cannot be used here: this scheduler keeps no parcels")
		}
		return p.keeper.Complete(ctx, jobs)
	}
	return nil
}

func parcelOf(k *parcel.Kept) api.Parcel {
	return api.Parcel{Digest: k.Digest, On: k.On, Repository: k.Repository, Base: k.Base, Commit: k.Commit, Size: k.Size}
}

// uploadStep is of how many bytes each has bodyTime to arrive.
const uploadStep = 1 << 20

// uploaded is the body of an upload, whose sender has to go on sending.
type uploaded struct {
	io.ReadCloser
	paced *paced
	left  int // of the step
}

// Read implements io.Reader.
func (u *uploaded) Read(p []byte) (int, error) {
	if u.left <= 0 {
		u.left = uploadStep
		u.paced.giveTime(bodyTime)
	}
	n, err := u.ReadCloser.Read(p)
	u.left -= n
	return n, err
}

func isUnknown(err error) bool { return errors.Is(err, parcel.ErrUnknown) }
