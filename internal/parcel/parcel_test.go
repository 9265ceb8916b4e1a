package parcel_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/parcel/parceltest"
	"github.com/agentsched/agentsched/job"
)

func TestFolder(t *testing.T) {
	parceltest.Run(t, func(t *testing.T) (parcel.Store, parceltest.Age) {
		dir := filepath.Join(t.TempDir(), "parcels")
		return parcel.NewFolder(dir), func(digest string, d time.Duration) {
			old := time.Now().Add(-d)
			if err := os.Chtimes(filepath.Join(dir, digest+".json"), old, old); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// text returns a parcel of which no bundle is looked into.
func text(head, bundle string) string {
	return fmt.Sprintf(`{"format":"sha1","roots":["%040d"],"base":"%040d","commit":"%040d",%s"size":%d,"sha256":"%s"}`+"\n%s", 1, 1, 2, head, len(bundle), sum(bundle), bundle)
}

// TestTakeHostile: what is not what it says leaves nothing behind.
func TestTakeHostile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "parcels")
	k := parcel.NewKeeper(parcel.NewFolder(dir), dir)
	whole := text("", "all")
	if _, err := k.Take(t.Context(), sum(whole), strings.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(whole, fmt.Sprintf("%040d", 1), fmt.Sprintf("%040d", 9), 2)
	if _, err := k.Take(t.Context(), sum(other), strings.NewReader(other)); err != nil {
		t.Fatal(err)
	}
	thin := text(fmt.Sprintf(`"on":"%s",`, sum(whole)), "more")
	for name, c := range map[string]struct{ digest, body, want string }{
		"another digest":   {sum("x"), whole + "x", "announced was " + sum("x")},
		"truncated":        {sum(thin), thin[:len(thin)-1], "announced was " + sum(thin)},
		"no digest":        {"../../x", whole, "want a SHA-256"},
		"no parcel":        {sum("PACK"), "PACK", "ends within its first line"},
		"long head":        {sum(strings.Repeat("a", 1<<20)), strings.Repeat("a", 1<<20), "first line has more than"},
		"another size":     {sum(thin + "!"), thin + "!", "the bundle has 5 bytes, announced were 4"},
		"another bundle":   {sum(strings.Replace(thin, "\nmore", "\nless", 1)), strings.Replace(thin, "\nmore", "\nless", 1), "another SHA-256"},
		"unknown field":    {sum(text(`"exec":"sh",`, "a")), text(`"exec":"sh",`, "a"), `unknown field "exec"`},
		"ids that are not": {sum(text(`"shallow":["--upload-pack"],`, "a")), text(`"shallow":["--upload-pack"],`, "a"), "want a full id"},
		"escaping folder":  {sum(text(`"sub":"../x",`, "a")), text(`"sub":"../x",`, "a"), "want a folder below the top"},
		"on nothing":       {sum(text(`"prerequisites":["`+strings.Repeat("a", 40)+`"],`, "a")), text(`"prerequisites":["`+strings.Repeat("a", 40)+`"],`, "a"), "names no parcel"},
		"on what is not":   {sum(text(`"on":"`+sum("no")+`",`, "a")), text(`"on":"`+sum("no")+`",`, "a"), "is not kept here"},
		"on another":       {sum(text(`"on":"`+sum(other)+`",`, "a")), text(`"on":"`+sum(other)+`",`, "a"), "not one of its repository"},
	} {
		if kept, err := k.Take(t.Context(), c.digest, strings.NewReader(c.body)); !errors.Is(err, parcel.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want %q", name, kept, err, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("left are %v, %v", left, err)
	}
	// It is bounded while it is read.
	k.MaxFile = 1000
	if _, err := k.Take(t.Context(), sum("x"), endless{}); !errors.Is(err, parcel.ErrLarge) {
		t.Errorf("an endless parcel: %v", err)
	}
	k.MaxAll = 1500
	if _, err := k.Take(t.Context(), sum("x"), endless{}); !errors.Is(err, parcel.ErrFull) {
		t.Errorf("one for which no room is left: %v", err)
	}
	k.MaxAll = 1 << 20
	if _, err := k.Take(t.Context(), sum(thin), strings.NewReader(thin)); err != nil {
		t.Error(err)
	}
	if err := k.Complete(t.Context(), []job.Spec{{Workspace: job.Workspace{Parcel: job.Parcel{Digest: sum("no")}}}}); !errors.Is(err, parcel.ErrUnknown) {
		t.Errorf("a job of one that is not kept: %v", err)
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
