package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/job"
)

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// parcelText returns a parcel whose bundle is a text: whoever takes it in does not look
// into that.
func parcelText(on, bundle string) string {
	commit := strings.Repeat("c", 40)
	if on == "" {
		commit = strings.Repeat("a", 40)
	}
	return fmt.Sprintf(`{"format":"sha1","roots":["%040d"],"base":"%s","commit":"%s","size":%d,"sha256":"%s","on":"%s"}`+"\n%s",
		1, strings.Repeat("a", 40), commit, len(bundle), sum(bundle), on, bundle)
}

// binary are the headers of a parcel.
var binary = []string{"Content-Type", "application/octet-stream"}

// parcelExchanges are those of the golden answers.
func parcelExchanges() []exchange {
	whole := parcelText("", "all")
	thin := parcelText(sum(whole), "more")
	return []exchange{
		{request: "PUT /v1/parcels/" + sum(whole), header: binary, body: whole},
		{request: "PUT /v1/parcels/" + sum(thin), header: binary, body: thin},
		{request: "PUT /v1/parcels/" + sum(thin), header: binary, body: thin + "!"},
		{request: "PUT /v1/parcels/" + sum("x"), header: binary, body: "x"},
		{request: "GET /v1/parcels/" + sum(thin)}, {request: "GET /v1/parcels/" + sum("none")}, {request: "GET /v1/parcels/none"},
		{request: "GET /v1/parcels?repository=" + parcelRepository}, {request: "GET /v1/parcels?repository=" + parcelRepository + "&commit=" + strings.Repeat("c", 40)},
		{request: "GET /v1/parcels?repository=" + sum("none")},
	}
}

// parcelRepository is what the repository of parcelText is called.
var parcelRepository = string(travel.Identity{Format: "sha1", Roots: []string{fmt.Sprintf("%040d", 1)}}.Key(""))

// putParcel sends a parcel and returns the status of the answer.
func (d *served) putParcel(digest, body string) int {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPut, "http://scheduler/v1/parcels/"+digest, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set(binary[0], binary[1])
	resp, err := d.http.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// parcel has a parcel kept, and returns its digest.
func (d *served) parcel() string {
	whole := parcelText("", "all")
	if status := d.putParcel(sum(whole), whole); status != http.StatusCreated {
		d.t.Fatalf("a parcel is answered %d", status)
	}
	return sum(whole)
}

// TestParcels: what jobs say of their parcels is what is kept of them.
func TestParcels(t *testing.T) {
	d := world(t)
	whole := parcelText("", "all")
	thin := parcelText(sum(whole), "more")
	if status := d.putParcel(sum(thin), thin); status != http.StatusUnprocessableEntity {
		t.Errorf("a parcel on one that is not kept: %d", status)
	}
	for _, p := range []string{whole, thin, thin} {
		if status := d.putParcel(sum(p), p); status != http.StatusCreated {
			t.Fatalf("a parcel: %d", status)
		}
	}
	s := spec("travels")
	s.Workspace = job.Workspace{Isolation: job.Worktree, Parcel: job.Parcel{Digest: sum(thin), Sub: "web", Base: "a lie", On: sum("a lie")}}
	resp, jobs := d.post("/v1/jobs", api.Submission{Source: "s", Jobs: []job.Spec{s}})
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("submitted: %s", resp.Status)
	}
	want := job.Parcel{Digest: sum(thin), On: sum(whole), Repository: parcelRepository, Sub: "web", Base: strings.Repeat("a", 40), Commit: strings.Repeat("c", 40)}
	if p := jobs.Jobs[0].Spec.Workspace.Parcel; p != want {
		t.Errorf("the job's parcel is %+v, want %+v", p, want)
	}
	s.Name, s.Workspace.Parcel.Digest = "unknown", sum("unknown")
	if resp, _ := d.post("/v1/jobs", api.Submission{Source: "s", Jobs: []job.Spec{s}}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a job of a parcel that is not kept: %s", resp.Status)
	}
}
