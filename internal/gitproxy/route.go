package gitproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Prefix is where a Proxy is served at the run's endpoint. The rest of the path
// is HOST/PATH of a repository and git's own suffix.
const Prefix = "/git/"

// The services of git's smart protocol.
const (
	uploadPack  = "git-upload-pack"  // git fetch
	receivePack = "git-receive-pack" // git push
)

// Repo is what a run may do with repositories of a host.
type Repo struct {
	// Host is a name in lower case, with a port if it is not 443: "github.com",
	// "git.example.com:8443".
	Host string
	// Path is the repository's path, or a pattern: * and ? stand for any text
	// within a segment, a last segment ** for one or more segments. "octo/site",
	// "octo/*", "group/**". The suffix .git makes no difference.
	Path string
	// Write allows git push, too.
	Write bool
}

var hostPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$`)

func (r Repo) check() error {
	if !hostPattern.MatchString(r.Host) {
		return fmt.Errorf("host %q of a git repository: want a name in lower case, with or without a port, e.g. github.com", r.Host)
	}
	for i, seg := range strings.Split(r.Path, "/") {
		_, err := path.Match(seg, "")
		last := i == strings.Count(r.Path, "/")
		if err != nil || !segment(seg) || strings.Contains(seg, "**") && (seg != "**" || !last) {
			return fmt.Errorf("path %q of a git repository of %s: want e.g. owner/name, owner/* or owner/**", r.Path, r.Host)
		}
	}
	return nil
}

// matches reports whether the repository at a path of a host is meant.
func (r Repo) matches(host, name string) bool {
	if host != r.Host {
		return false
	}
	want, have := strings.Split(bare(r.Path), "/"), strings.Split(bare(name), "/")
	if n := len(want) - 1; want[n] == "**" {
		if len(have) <= n {
			return false
		}
		want, have = want[:n], have[:n]
	}
	return slices.EqualFunc(want, have, func(pattern, seg string) bool {
		ok, err := path.Match(pattern, seg)
		return ok && err == nil
	})
}

func bare(name string) string { return strings.TrimSuffix(name, ".git") }

// segment reports whether s can be a part of a repository's path. What servers
// read in different ways (escapes, parameters, dots) cannot.
func segment(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == 0xfffd || strings.ContainsRune(`\%;#`, r)
	})
}

// request is a request of the smart protocol.
type request struct {
	host, path string
	service    string
	advertise  bool // GET info/refs
}

func (q request) write() bool { return q.service == receivePack }

// url returns the address at the host.
func (q request) url() *url.URL {
	u := &url.URL{Scheme: "https", Host: q.host, Path: "/" + q.path + "/" + q.service}
	if q.advertise {
		u.Path, u.RawQuery = "/"+q.path+"/info/refs", "service="+q.service
	}
	return u
}

// local returns the address at the proxy.
func (q request) local() string {
	u := q.url()
	u.Path, u.Scheme, u.Host = strings.TrimSuffix(Prefix, "/")+"/"+q.host+u.Path, "", ""
	return u.RequestURI()
}

// parse reads what a method, a path below Prefix and a query ask for. The error is
// what the run is told.
func parse(method, host, escaped, query string) (request, error) {
	var q request
	name, err := url.PathUnescape(escaped)
	if err != nil || !hostPattern.MatchString(host) {
		return q, fmt.Errorf("%.300q is not the address of a git repository", host+"/"+escaped)
	}
	q.host = host
	switch {
	case strings.HasSuffix(name, "/info/refs"):
		q.path, q.advertise = strings.TrimSuffix(name, "/info/refs"), true
		service, ok := strings.CutPrefix(query, "service=")
		if !ok || service != uploadPack && service != receivePack {
			return q, fmt.Errorf("only git's smart HTTP protocol is passed on, not %.200q", name+"?"+query)
		}
		q.service = service
	case strings.HasSuffix(name, "/"+uploadPack):
		q.path, q.service = strings.TrimSuffix(name, "/"+uploadPack), uploadPack
	case strings.HasSuffix(name, "/"+receivePack):
		q.path, q.service = strings.TrimSuffix(name, "/"+receivePack), receivePack
	default:
		return q, fmt.Errorf("only git's smart HTTP protocol is passed on, not %.200q", name)
	}
	if !q.advertise && query != "" {
		return q, fmt.Errorf("only git's smart HTTP protocol is passed on, not the query %.200q", query)
	}
	if want := map[bool]string{true: http.MethodGet, false: http.MethodPost}[q.advertise]; method != want {
		return q, fmt.Errorf("only git's smart HTTP protocol is passed on, not %.20q of %.200q", method, name)
	}
	// A second spelling of the same path could be one repository here and another
	// at the host.
	if strings.Contains(strings.ToLower(escaped), "%2f") || !validPath(q.path) {
		return q, fmt.Errorf("%.300q is not the path of a git repository", q.path)
	}
	return q, nil
}

func validPath(name string) bool {
	parts := strings.Split(name, "/")
	return len(parts) <= 20 && !slices.ContainsFunc(parts, func(s string) bool { return !segment(s) })
}

// split returns the host and the escaped rest of a URL below Prefix.
func split(u *url.URL) (host, rest string) {
	host, rest, _ = strings.Cut(strings.TrimPrefix(u.EscapedPath(), Prefix), "/")
	return host, rest
}

// isLFS reports whether a request is one of Git LFS.
func isLFS(u *url.URL) bool { return strings.Contains(u.Path, "/info/lfs/") }
