package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/agentsched/agentsched/api"
)

// PutParcel sends a folder, packed as a parcel of so many bytes, for jobs whose workspace
// it is: api.JobFile.Parcels, or the digest in the job's workspace. It may be sent again.
func (c *Client) PutParcel(ctx context.Context, digest string, content io.Reader, size int64) (api.Parcel, error) {
	var out api.Parcel
	err := c.do(ctx, request{method: http.MethodPut, path: "/v1/parcels/" + url.PathEscape(digest), raw: content, size: size}, &out)
	return out, err
}

// Parcel returns a parcel that is kept; its error is an *api.Problem named no_parcel if
// there is none.
func (c *Client) Parcel(ctx context.Context, digest string) (api.Parcel, error) {
	var out api.Parcel
	err := c.get(ctx, "/v1/parcels/"+url.PathEscape(digest), nil, &out)
	return out, err
}

// Parcels returns those of a repository that have a commit, or with "" those that a new
// one may build on.
func (c *Client) Parcels(ctx context.Context, repository, commit string) ([]api.Parcel, error) {
	var out api.Parcels
	err := c.get(ctx, "/v1/parcels", url.Values(query{}.add("repository", repository).add("commit", commit)), &out)
	return out.Parcels, err
}
