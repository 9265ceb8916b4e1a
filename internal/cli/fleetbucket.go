package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/objects"
	"github.com/agentsched/agentsched/queue/postgres"
)

// openBucket returns where a configuration has files of attempts lie, nil if that is the database.
func openBucket(cfg *config.Config, getenv func(string) string) (*objects.Bucket, error) {
	s := cfg.Fleet.Artifacts.S3
	if s == nil {
		return nil, nil //nolint:nilnil // no bucket is no error
	}
	b, err := objects.Open(objects.Config{
		Endpoint: s.Endpoint, Bucket: s.Bucket, Prefix: s.Prefix, Region: s.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey,
		CAFile: s.CAFile, Addressing: objects.Addressing(s.Addressing),
	}, getenv)
	if err != nil {
		return nil, fmt.Errorf("fleet.artifacts.s3.%w", err)
	}
	return b, nil
}

// bucketTime is how long a bucket may take to be tried.
const bucketTime = 20 * time.Second

// tryBucket says early what an attempt's end would say: that files cannot be kept in the bucket.
func (m *fleetMember) tryBucket(ctx context.Context, files *postgres.Artifacts) {
	ctx, cancel := context.WithTimeout(ctx, bucketTime)
	defer cancel()
	if err := files.CheckBucket(ctx); err != nil && !errors.Is(err, context.Canceled) {
		m.state.log.Warn().Err(err).Msg("fleet.artifacts.s3 cannot be used now: files of attempts stay on the host that ran them while that is so")
	}
}

// examineBucket tells whether files of attempts can be kept in the bucket.
func examineBucket(ctx context.Context, cfg *config.Config, getenv func(string) string) finding {
	f := finding{What: "fleet.artifacts", Status: "ok", Note: "written, read, listed and removed"}
	ctx, cancel := context.WithTimeout(ctx, bucketTime)
	defer cancel()
	b, err := openBucket(cfg, getenv)
	if err == nil {
		defer b.Close()
		f.Path = b.String()
		if err = b.Check(ctx, "doctor."+rand.Text()); err != nil {
			err = fmt.Errorf("fleet.artifacts.s3: %w", err)
		}
	}
	if err != nil {
		f.Status, f.Note = "error", strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return f
}
