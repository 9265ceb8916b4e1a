package gitproxy

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

func TestRepo(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"octo/site", "octo/site", true},
		{"octo/site", "octo/site.git", true},
		{"octo/site.git", "octo/site", true},
		{"octo/site", "octo/site2", false},
		{"octo/site", "octo/site/more", false},
		{"octo/site", "Octo/site", false},
		{"octo/*", "octo/site", true},
		{"octo/*", "octo/a/b", false},
		{"octo/*", "octo", false},
		{"octo/s*e", "octo/site.git", true},
		{"group/**", "group/a/b/c", true},
		{"group/**", "group/a.git", true},
		{"group/**", "group", false},
		{"**", "any/thing", true},
		{"*/site", "octo/site", true},
	} {
		r := Repo{Host: "github.com", Path: c.pattern}
		if err := r.check(); err != nil {
			t.Errorf("%s: %v", c.pattern, err)
		}
		if got := r.matches("github.com", c.path); got != c.want {
			t.Errorf("%s matches %s: %v", c.pattern, c.path, got)
		}
		if r.matches("github.com.example.com", c.path) || r.matches("github.com:8443", c.path) {
			t.Errorf("%s matches another host", c.pattern)
		}
	}
	for _, r := range []Repo{
		{Host: "", Path: "a/b"}, {Host: "https://github.com", Path: "a/b"}, {Host: "GitHub.com", Path: "a/b"}, {Host: "a@github.com", Path: "a/b"},
		{Host: "github.com", Path: ""}, {Host: "github.com", Path: "/a/b"}, {Host: "github.com", Path: "a/../b"}, {Host: "github.com", Path: "a/[b"},
		{Host: "github.com", Path: "**/b"}, {Host: "github.com", Path: "a**/b"}, {Host: "github.com", Path: "a/b/"},
	} {
		if _, err := New(Config{Allow: []Repo{r}}); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		method, address string
		want            request // none: refused
	}{
		{"GET", "octo/site.git/info/refs?service=git-upload-pack", request{"h.example", "octo/site.git", uploadPack, true}},
		{"GET", "octo/site/info/refs?service=git-receive-pack", request{"h.example", "octo/site", receivePack, true}},
		{"POST", "octo/my%20site/git-upload-pack", request{"h.example", "octo/my site", uploadPack, false}},
		{"POST", "octo/site/git-receive-pack", request{"h.example", "octo/site", receivePack, false}},
		{"GET", "octo/site/info/refs", request{}}, // the dumb protocol
		{"GET", "octo/site/HEAD", request{}},
		{"GET", "octo/site/objects/info/packs", request{}},
		{"GET", "octo/site/info/refs?service=git-upload-archive", request{}},
		{"GET", "octo/site/info/refs?service=git-upload-pack&service=git-receive-pack", request{}},
		{"POST", "octo/site/git-upload-pack?service=git-receive-pack", request{}},
		{"GET", "octo/site/git-upload-pack", request{}},
		{"POST", "octo/site/info/refs?service=git-upload-pack", request{}},
		{"DELETE", "octo/site/git-upload-pack", request{}},
		{"GET", "octo/../other/private/info/refs?service=git-upload-pack", request{}},
		{"GET", "octo/%2e%2E/other/info/refs?service=git-upload-pack", request{}},
		{"GET", "octo%2fsite/info/refs?service=git-upload-pack", request{}},
		{"GET", "octo/site%252f/info/refs?service=git-upload-pack", request{}},
		{"GET", "octo//site/info/refs?service=git-upload-pack", request{}},
		{"GET", "octo/site%3fx/info/refs?service=git-upload-pack", request{"h.example", "octo/site?x", uploadPack, true}},
		{"GET", "octo/si%00te/info/refs?service=git-upload-pack", request{}},
		{"GET", `octo/..%5cother/info/refs?service=git-upload-pack`, request{}},
		{"GET", "/info/refs?service=git-upload-pack", request{}},
		{"GET", "octo/site;x/info/refs?service=git-upload-pack", request{}},
		{"GET", strings.Repeat("a/", 30) + "info/refs?service=git-upload-pack", request{}},
	} {
		escaped, query, _ := strings.Cut(c.address, "?")
		got, err := parse(c.method, "h.example", escaped, query)
		if err == nil && got != c.want || (err != nil) != (c.want == request{}) {
			t.Errorf("%s %s: %+v, %v", c.method, c.address, got, err)
		}
		if err == nil && !strings.HasPrefix(got.url().String(), "https://h.example/octo/") {
			t.Errorf("%s leads to %s", c.address, got.url())
		}
	}
	for _, host := range []string{"", "user@h.example", "h.example:0", "h.example:99999999", "h.example/..", "[::1]", "H.example", "h%2eexample"} {
		if _, err := parse(http.MethodGet, host, "octo/site/info/refs", "service=git-upload-pack"); err == nil {
			t.Errorf("host %q is accepted", host)
		}
	}
}

func TestMask(t *testing.T) {
	secrets := [][]byte{[]byte("tokentoken1"), []byte("tokens")}
	text := "a tokentoken1, tokentokentoken1, tokens and token"
	want := "a ***********, token***********, ****** and token"
	for size := 1; size <= len(text); size++ {
		var b bytes.Buffer
		m := &mask{w: &b, secrets: secrets}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := m.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := m.flush(); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("in pieces of %d: %q", size, b.String())
		}
	}
}

func TestGitConfig(t *testing.T) {
	config := GitConfig([]Repo{{Host: "github.com", Path: "octo/site.git"}, {Host: "github.com", Path: "octo/s*"}, {Host: "git.example.com:8443", Path: "**"}}, "http://127.0.0.1:4711/", "k")
	has := map[[2]string]bool{}
	for _, item := range config {
		has[item] = true
	}
	for _, want := range [][2]string{
		{"http.http://127.0.0.1:4711/git/.extraHeader", "Authorization: Bearer k"},
		{"url.http://127.0.0.1:4711/git/github.com/octo/site.insteadOf", "https://github.com/octo/site"},
		{"url.http://127.0.0.1:4711/git/github.com/octo/site.insteadOf", "git@github.com:octo/site"},
		{"url.http://127.0.0.1:4711/git/github.com/octo/.insteadOf", "ssh://git@github.com/octo/"},
		{"url.http://127.0.0.1:4711/git/git.example.com:8443/.insteadOf", "https://git.example.com:8443/"},
	} {
		if !has[want] {
			t.Errorf("%v is missing: %q", want, config)
		}
	}
	if env := Environ(config); env[0] != "GIT_CONFIG_COUNT=10" || env[1] != "GIT_CONFIG_KEY_0=http.http://127.0.0.1:4711/git/.extraHeader" {
		t.Errorf("%q", env)
	}
}
