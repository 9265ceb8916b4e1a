package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestGrants: a policy as a list that only allows. Paths are below a folder that has
//
//	home/{.ssh/{id,sub/deep},.netrc,tools/{bin,lib}}  work/{.git/hooks,src}  link -> home/.ssh
func TestGrants(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"home/.ssh/sub", "home/tools", "work/.git/hooks", "work/src"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"home/.ssh/id", "home/.ssh/sub/deep", "home/.netrc", "home/tools/bin", "home/tools/lib"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("home/.ssh", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ read, write, hide, want string }{
		"nothing":                  {},
		"a folder":                 {read: "home", want: "home:r"},
		"both":                     {read: "home", write: "work", want: "home:r work:w"},
		"twice":                    {read: "work home", write: "work", want: "home:r work:r"},
		"hidden and read":          {read: "home", hide: "home", want: ""},
		"a hidden folder":          {read: "home", hide: "home/.ssh", want: "home/.netrc:r home/tools:r"},
		"a hidden file":            {read: "home", hide: "home/.netrc", want: "home:n home/.ssh:r home/tools:r"},
		"by a link":                {read: "home", hide: "link", want: "home/.netrc:r home/tools:r"},
		"read by a link":           {read: "link", want: "home/.ssh:r"},
		"deeper than hidden":       {read: "home", write: "home/.ssh/sub", hide: "home/.ssh", want: "home/.netrc:r home/.ssh/sub:w home/tools:r"},
		"hidden, nothing around":   {read: "home/.ssh/sub", hide: "home", want: "home/.ssh/sub:r"},
		"written below read":       {read: "home", write: "home/tools", want: "home:r home/tools:w"},
		"read below written":       {read: "work/.git", write: "work", want: "work:n work/.git:r work/src:w"},
		"hidden below a link":      {read: ".", hide: "home/.ssh", want: "home/.netrc:r home/tools:r work:r"},
		"hidden and not there":     {read: "home", hide: "home/.aws", want: "home:r"},
		"read and not there":       {read: "home missing", want: "home:r"},
		"a name that begins alike": {read: "work work-2", hide: "work/src", want: "work/.git:r"},
	} {
		t.Run(name, func(t *testing.T) {
			paths := func(list string) (out []string) {
				for p := range strings.FieldsSeq(list) {
					out = append(out, filepath.Join(root, p))
				}
				return out
			}
			p := &Policy{Read: paths(tc.read), Write: paths(tc.write), Hide: paths(tc.hide)}
			list, err := p.grants()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range list {
				what := map[rights]string{readable: "r", writable: "w"}[g.rights]
				if g.names {
					what = "n"
				}
				rel, err := filepath.Rel(root, g.path)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rel+":"+what)
			}
			want := strings.Fields(tc.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("allowed %q, want %q", got, want)
			}
		})
	}
}

// TestTooManyGrants: what cannot be allowed one by one is an error that names the folder.
func TestTooManyGrants(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxGrants + 2 {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	p := &Policy{Read: []string{dir}, Hide: []string{filepath.Join(dir, "0")}}
	if list, err := p.grants(); err == nil || !strings.Contains(err.Error(), "allow "+dir+" without") {
		t.Errorf("%d grants, %v", len(list), err)
	}
	p.Hide = nil
	if list, err := p.grants(); err != nil || len(list) != 1 {
		t.Errorf("%d grants, %v", len(list), err)
	}
}

// TestByFolder: what is below a folder follows it at once.
func TestByFolder(t *testing.T) {
	paths := []string{"/b", "/a-b", "/a/c", "/", "/a", "/a b", "/a/c/d", "/a/c-d"}
	slices.SortFunc(paths, byFolder)
	if want := []string{"/", "/a", "/a/c", "/a/c/d", "/a/c-d", "/a b", "/a-b", "/b"}; !slices.Equal(paths, want) {
		t.Errorf("sorted %q, want %q", paths, want)
	}
}

// TestPolicyMistakes: the list and the path are named.
func TestPolicyMistakes(t *testing.T) {
	for want, p := range map[string]*Policy{
		`sandbox level ""`:         {},
		`sandbox.read: "relative"`: {Level: None, Read: []string{"relative"}},
		`sandbox.write: "/a/../b"`: {Level: None, Write: []string{"/a/../b"}},
		`sandbox.hide: "/a/"`:      {Level: None, Hide: []string{"/a/"}},
	} {
		if s, err := p.Prepare("/bin/sh", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("prepared %v, %v; want an error with %s", s, err, want)
		}
	}
}

// TestLevelNone: the program itself is started.
func TestLevelNone(t *testing.T) {
	s, err := (&Policy{Level: None}).Prepare("/bin/sh", []*os.File{os.Stdin})
	if err != nil || s.Path != "/bin/sh" || len(s.Extra) != 1 {
		t.Fatalf("prepared %+v, %v", s, err)
	}
	if err := s.Started(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
