package agentcli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMakeFoldersFollowsNoLink: a run that has put a link in the place of a folder of its home does not have what is written there
// written elsewhere.
func TestMakeFoldersFollowsNoLink(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"data": elsewhere, "kept/link": elsewhere, "dangling": filepath.Join(elsewhere, "none")} {
		if err := os.Symlink(to, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, name := range []string{"data", "data/program", "kept/link/program", "dangling/program", "file", "new/program"} {
			path := filepath.Join(home, name)
			if err := MakeFolders(home, path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if real, err := filepath.EvalSymlinks(path); err != nil || real != path {
				t.Errorf("%s is %s, %v", name, real, err)
			}
		}
	}
	if list, err := os.ReadDir(elsewhere); err != nil || len(list) > 0 {
		t.Errorf("there are %v elsewhere, %v", list, err)
	}
	for _, path := range []string{filepath.Join(home, "../x"), elsewhere} {
		if err := MakeFolders(home, path); err == nil {
			t.Errorf("%s was made for a home in %s", path, home)
		}
	}
}
