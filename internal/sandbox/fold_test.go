package sandbox

import "testing"

func TestFold(t *testing.T) {
	f := newFolds(map[string]rights{"/usr": readable, "/home/u/.ssh": hidden, "/home/u/.local/bin": readable, "/srv/work/a": writable}, []string{"/home/u", "/home/u/.cache"})
	for _, test := range []struct {
		path   string
		folder bool
		want   string
		broad  bool
	}{
		{"/srv/data/a.bin", false, "/srv/data", false},
		{"/srv/data", true, "/srv/data", false},
		{"/srv/data/models/small/a.bin", false, "/srv/data/models", false},
		{"/srv/file", false, "/srv/file", false},
		{"/srv/work/b/c", false, "/srv/work/b", false}, // beside what is granted
		{"/srv", true, "/srv", true},
		{"/", true, "/", true},
		{"/home/u", true, "/home/u", true},
		{"/home/u/.gitconfig", false, "/home/u/.gitconfig", false},
		{"/home/u/.ssh/id", false, "/home/u/.ssh", false},
		{"/home/u/.local/share/x/y/z", false, "/home/u/.local/share/x", false},
		{"/home/u/.cache/x/y", false, "/home/u/.cache/x", false},
		{"/home/u/.cache", true, "/home/u/.cache", true},
		{"/home/u/src/site/go.mod", false, "/home/u/src/site", false},
		{"/home/u/src/site/cmd/main.go", false, "/home/u/src/site", false},
	} {
		if got, broad := f.fold(test.path, test.folder); got != test.want || broad != test.broad {
			t.Errorf("%s: %s, broad %v; want %s, %v", test.path, got, broad, test.want, test.broad)
		}
	}
}
