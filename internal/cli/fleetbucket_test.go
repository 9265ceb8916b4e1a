package cli

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/objects/objectstest"
)

// What doctor says of the bucket is what the service says, by the field that is wrong.
func TestBucketIsExamined(t *testing.T) {
	s := objectstest.Start(t)
	environ := map[string]string{"KEY": objectstest.AccessKey, "SECRET": objectstest.SecretKey, "WRONG": "another"}
	for want, change := range map[string]func(*config.S3){
		"written, read, listed and removed":                     func(*config.S3) {},
		"fleet.artifacts.s3: secret_key: it is not that of":     func(s *config.S3) { s.SecretKey = "env:WRONG" },
		"fleet.artifacts.s3: bucket: there is none":             func(s *config.S3) { s.Bucket = "another" },
		"fleet.artifacts.s3.access_key: env:NONE holds nothing": func(s *config.S3) { s.AccessKey = "env:NONE" },
	} {
		cfg := config.Default()
		cfg.Fleet.Artifacts.S3 = &config.S3{Endpoint: s.URL, Bucket: objectstest.Bucket, Region: objectstest.Region, AccessKey: "env:KEY", SecretKey: "env:SECRET", Addressing: "auto"}
		change(cfg.Fleet.Artifacts.S3)
		f := examineBucket(t.Context(), &cfg, func(name string) string { return environ[name] })
		if (f.Status == "ok") != strings.HasPrefix(want, "written") || f.Required || !strings.Contains(f.Note, want) || strings.Contains(f.Note, objectstest.SecretKey) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	if left := s.Keys(t); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}
