package parcel

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/job"
)

// MaxFile bounds one parcel, and MaxAll all that are kept, in bytes.
const (
	MaxFile = travel.MaxFile
	MaxAll  = 64 << 30
)

// atOnce is how many parcels are taken in at once; others wait.
const atOnce = 4

// Keeper takes parcels in, and finds them for jobs.
type Keeper struct {
	Store
	// MaxFile and MaxAll are the bounds in force; NewKeeper sets the constants.
	MaxFile, MaxAll int64

	temp   string
	taking chan struct{}
}

// NewKeeper returns a keeper of a store. What arrives lies in the folder temp, absolute,
// until it is whole; it is made when it is missing. Nobody else uses the folder for that: what a
// process that died has left there is removed.
func NewKeeper(s Store, temp string) *Keeper {
	left, _ := filepath.Glob(filepath.Join(temp, arriving)) // the pattern is right
	for _, path := range left {
		os.Remove(path) //nolint:errcheck // then it stays
	}
	return &Keeper{Store: s, MaxFile: MaxFile, MaxAll: MaxAll, temp: temp, taking: make(chan struct{}, atOnce)}
}

// arriving are the names of files that are not whole yet.
const arriving = "arriving-*"

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Take keeps the parcel whose file is read from body, if that has the digest and is what
// its head says. The errors wrap ErrInvalid, ErrLarge, ErrFull, or tell why body could not
// be read.
func (k *Keeper) Take(ctx context.Context, digest string, body io.Reader) (Kept, error) {
	if !digestForm.MatchString(digest) {
		return Kept{}, fmt.Errorf("%w: the digest is %.80q, want a SHA-256 of 64 hexadecimal digits", ErrInvalid, digest)
	}
	select {
	case k.taking <- struct{}{}:
		defer func() { <-k.taking }()
	case <-ctx.Done():
		return Kept{}, context.Cause(ctx)
	}
	if err := os.MkdirAll(k.temp, 0o700); err != nil {
		return Kept{}, err
	}
	file, err := os.CreateTemp(k.temp, arriving)
	if err != nil {
		return Kept{}, err
	}
	defer file.Close()
	defer os.Remove(file.Name())
	size, err := k.spool(ctx, file, digest, body)
	if err != nil {
		return Kept{}, err
	}
	kept, err := k.look(ctx, file, digest, size)
	if err != nil {
		return Kept{}, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return Kept{}, err
	}
	return kept, k.Put(ctx, kept, file)
}

// spool writes what arrives, and compares it with its digest.
func (k *Keeper) spool(ctx context.Context, file *os.File, digest string, body io.Reader) (int64, error) {
	all, err := k.Size(ctx)
	if err != nil {
		return 0, err
	}
	hash := sha256.New()
	most := max(min(k.MaxFile, k.MaxAll-all), 0)
	size, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the parcel: %w", err)
	case size > k.MaxFile:
		return 0, fmt.Errorf("%w: a parcel has at most %d bytes", ErrLarge, k.MaxFile)
	case size > most:
		return 0, fmt.Errorf("%w: all together have at most %d bytes; they go when their jobs are forgotten (retention)", ErrFull, k.MaxAll)
	case hex.EncodeToString(hash.Sum(nil)) != digest:
		return 0, fmt.Errorf("%w: what came has %d bytes with the SHA-256 %x, announced was %s", ErrInvalid, size, hash.Sum(nil), digest)
	}
	return size, nil
}

// look reads what the parcel says that it is, and compares it with what it has.
func (k *Keeper) look(ctx context.Context, file *os.File, digest string, size int64) (Kept, error) {
	bad := func(err error) (Kept, error) { return Kept{}, fmt.Errorf("%w: %w", ErrInvalid, err) }
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return Kept{}, err
	}
	r := bufio.NewReader(file)
	p, head, err := travel.ReadHead(r)
	if err != nil {
		return bad(err)
	}
	hash := sha256.New()
	n, err := io.Copy(hash, r)
	switch {
	case err != nil:
		return Kept{}, err
	case n != p.Size || n+head != size:
		return bad(fmt.Errorf("the bundle has %d bytes, announced were %d", n, p.Size))
	case p.Size > 0 && hex.EncodeToString(hash.Sum(nil)) != p.SHA256:
		return bad(errors.New("the bundle has another SHA-256 than was announced"))
	}
	kept := Kept{Size: size, Parcel: job.Parcel{Digest: digest, On: p.On, Repository: string(p.Key("")), Base: p.Base, Commit: p.Commit}}
	if p.On == "" {
		if len(p.Prerequisites) > 0 || p.Size == 0 {
			return bad(errors.New("it builds on other commits and names no parcel (on) that has them"))
		}
		return kept, nil
	}
	on, err := k.Use(ctx, p.On)
	switch {
	case errors.Is(err, ErrUnknown):
		return bad(fmt.Errorf("it builds on parcel %s, which is not kept here", p.On))
	case err != nil:
		return Kept{}, err
	case on.On != "" || on.Repository != kept.Repository:
		return bad(fmt.Errorf("it builds on parcel %s, which is not one of its repository with the whole history", p.On))
	}
	return kept, nil
}

// Complete fills in what the workspaces of jobs say of their parcels beside the digest.
// The error wraps ErrUnknown if one is not kept.
func (k *Keeper) Complete(ctx context.Context, jobs []job.Spec) error {
	found := map[string]job.Parcel{}
	for i := range jobs {
		p := &jobs[i].Workspace.Parcel
		if p.Digest == "" {
			continue
		}
		is, seen := found[p.Digest]
		if !seen {
			kept, err := k.Use(ctx, p.Digest)
			if err == nil && kept.On != "" {
				_, err = k.Use(ctx, kept.On)
			}
			if err != nil {
				return fmt.Errorf("job %s: %w", jobs[i].Name, err)
			}
			is = kept.Parcel
			found[p.Digest] = is
		}
		is.Folder, is.Sub = p.Folder, p.Sub
		*p = is
	}
	return nil
}

// Grace is how long a parcel stays that no job names: its submission is about to follow.
const Grace = time.Hour

// Forget removes what no job names, given the digests that jobs do.
func (k *Keeper) Forget(ctx context.Context, named []string) (int, error) {
	all := map[string]bool{}
	for _, digest := range named {
		all[digest] = true
	}
	return k.Prune(ctx, all, time.Now().Add(-Grace))
}
