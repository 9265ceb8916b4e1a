package cli

import (
	"maps"
	"testing"
	"testing/synctest"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/workspace"
)

// TestLimitsOfFolders: of two names for one folder the stricter limit holds, and a folder
// whose file system does not answer keeps its name and holds nothing up.
func TestLimitsOfFolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		defer close(hung)
		folders := workspace.NewResolver(func(path string) (string, error) {
			switch path {
			case "/hung":
				<-hung
			case "/a", "/b", "/c":
				return "/real", nil
			}
			return path, nil
		}, nil)
		var cfg config.Config
		cfg.Concurrency.PerWorkspace = map[string]int{"/a": 2, "/b": 1, "/c": 0, "/hung": 3}
		want := map[string]int{"/real": 1, "/hung": 3}
		if got := limits(&cfg, folders).PerWorkspace; !maps.Equal(got, want) {
			t.Errorf("the limits of folders are %v, want %v", got, want)
		}
	})
}
