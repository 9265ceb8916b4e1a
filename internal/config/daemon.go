package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/job"
)

// API is how others reach a running scheduler beside its unix socket.
type API struct {
	// IP address or `localhost`, and port, such as `127.0.0.1:7433`. Every request needs a token. An
	// address that other hosts reach needs `api.tls` as well.
	Listen string `json:"listen,omitempty" otherwise:"none: only the unix socket"`
	// What other hosts are answered with: both files or none.
	TLS TLS `json:"tls,omitzero"`
	// Names, without ports, by which requests may call this host, beside `localhost` and the addresses
	// that it listens on. Any other is refused: so no web page reaches it by a name of its own.
	Hosts []string `json:"hosts,omitempty"`
	// The address by which browsers reach `api.listen`, such as `https://agents.example.com`. With it, what a command or a
	// webhook of `escalation` is told of a question has a link that answers it, once, without a login. `https`, or `http`
	// of this host.
	PublicURL string `json:"public_url,omitempty" otherwise:"none: there are no links"`
	// How often each client may ask.
	Rate ClientRate `json:"rate"`
	// The largest request, `64KiB` to `1GiB`.
	MaxBody Size `json:"max_body" min:"64KiB" max:"1GiB"`
	// The folder in which a job file that comes in a request may name files (`instructions: {file:
	// …}`, `agents_file`). Not `/` and nothing below `/proc`, `/sys`, `/dev`. `scheduler submit` needs
	// none: it sends the files along.
	Files string `json:"files,omitempty"`
}

// TLS names PEM files; both or none.
type TLS struct {
	// The certificate chain in PEM, the host's own first. Paths start from the folder of the
	// configuration file.
	Cert string `json:"cert,omitempty"`
	// The key in PEM.
	Key string `json:"key,omitempty"`
}

// ClientRate bounds the requests of each client.
type ClientRate struct {
	// Requests a second, in the long run, of each client; `0` any number.
	PerSecond float64 `json:"per_second" min:"0" want:"requests per second" zero:"no bound"`
	// And so many at once.
	Burst int `json:"burst" min:"1" want:"1 or more: with less no request would ever pass"`
}

// Log says which lines are written, and how.
type Log struct {
	// Of standard error: `console`, for people; `json`, an object a line; `auto`: `console` on a
	// terminal, else `json`. The state directory's `scheduler.log` is always JSON.
	Format logging.Format `json:"format"`
	// The least level of the lines that are written: `debug`, `info`, `warn`, `error` or `off`.
	Level logging.Level `json:"level"`
	// The same by component: `scheduler`, `store`, `supervisor`, `core`, `process`, `api`, `hooks`,
	// `triggers`, `upkeep`, `dead_letters`, `audit`, `telemetry`, `daemon`. A core writes from the
	// level on that it was started with: more detail begins with its next start, less at once.
	Levels map[logging.Component]logging.Level `json:"levels,omitempty"`
}

// Telemetry is where traces go.
type Telemetry struct {
	// Where traces go.
	OTLP OTLP `json:"otlp,omitzero"`
}

// OTLP is a collector that takes OTLP over HTTP.
type OTLP struct {
	// A collector that takes OTLP over HTTP, such as `http://127.0.0.1:4318`, without user and
	// password.
	Endpoint string `json:"endpoint,omitempty" otherwise:"none: no traces"`
	// Headers of each request, such as `authorization`. Their values are secrets: keep the file to
	// yourself (mode 0600), or set them by a variable.
	Headers map[string]string `json:"headers,omitempty"`
}

// Audit is the record of who did what.
type Audit struct {
	// Whether there is a record of who did what.
	Enabled bool `json:"enabled"`
	// The size from which a file of it is put aside, at least `1MiB`.
	MaxSize Size `json:"max_size" min:"1MiB"`
	// How many of these are kept, at least `1`.
	Keep int `json:"keep" min:"1" want:"how many full files are kept, 1 or more"`
}

func defaultAPI() API {
	return API{Rate: ClientRate{PerSecond: 50, Burst: 200}, MaxBody: 64 << 20}
}

// resolved returns t with its paths taken relative to folder, which is absolute.
func (t TLS) resolved(folder string) TLS {
	for _, path := range []*string{&t.Cert, &t.Key} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(folder, *path)
		}
	}
	return t
}

var (
	// hostName is a name of DNS: RFC 1123, section 2.1.
	hostName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	// headerName is a token of RFC 9110, section 5.6.2.
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

func (v *validator) api() {
	a := v.config.API
	reachable, right := v.listen("api.listen", a.Listen)
	switch {
	case a.TLS.Cert != "" && a.TLS.Key == "":
		v.Failf("api.tls.key", "is missing: api.tls.cert is of no use without its key, want the path of a PEM file")
	case a.TLS.Key != "" && a.TLS.Cert == "":
		v.Failf("api.tls.cert", "is missing: api.tls.key is of no use without its certificate, want the path of a PEM file")
	case a.TLS.Cert != "" && a.Listen == "" && right:
		v.Failf("api.tls", "has no use without api.listen: the unix socket has no need of it")
	case reachable && a.TLS.Cert == "":
		v.Failf("api.listen", "%q can be reached by other hosts, which needs api.tls; want api.tls with cert and key, or an address such as 127.0.0.1:7433", a.Listen)
	}
	if a.PublicURL != "" {
		v.publicURL(a)
	}
	for i, host := range a.Hosts {
		path := fmt.Sprintf("api.hosts[%d]", i)
		if _, err := netip.ParseAddr(host); err != nil && !hostName.MatchString(host) {
			v.Failf(path, "%q is no name of a host, want one without scheme and port such as scheduler.example.com", host)
		}
	}
	if a.Files != "" && (filepath.Clean(a.Files) == "/" || job.InKernel(a.Files)) {
		v.Failf("api.files", "%q holds more than job files; want a folder for them such as /srv/jobs", a.Files)
	}
}

// publicURL looks at where links lead.
func (v *validator) publicURL(a API) {
	const field = "api.public_url"
	u, err := url.Parse(a.PublicURL)
	switch web, _ := isWeb(a.PublicURL); {
	case err != nil || !web:
		v.Failf(field, "%q is no address, want one such as https://agents.example.com", a.PublicURL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		v.Failf(field, "must have no user, password, query or fragment, want an address such as https://agents.example.com")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		v.Failf(field, "%q would show the secrets in links to who listens on the way, want https", a.PublicURL)
	case a.Listen == "":
		v.Failf(field, "has no use without api.listen: browsers do not reach the unix socket")
	}
}

// listen looks at an address to listen on. It tells whether other hosts can
// reach it, and whether it is right.
func (v *validator) listen(path, address string) (reachable, right bool) {
	if address == "" {
		return false, true
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		v.Failf(path, "%q is no address, want host and port such as 127.0.0.1:7433", address)
		return false, false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		v.Failf(path, "%q has the port %q, want a number from 0, for any that is free, to 65535", address, port)
		return false, false
	}
	if host == "localhost" {
		return false, true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil && host != "" {
		v.Failf(path, "%q has the host %q, want an IP address or localhost, such as 127.0.0.1:7433", address, host)
		return false, false
	}
	return !ip.IsLoopback(), true
}

// telemetry looks at where traces go. Its messages never repeat an address or a
// header's value, which may be secrets.
func (v *validator) telemetry() {
	o := v.config.Telemetry.OTLP
	if o.Endpoint != "" {
		switch web, credentials := isWeb(o.Endpoint); {
		case !web:
			v.Failf("telemetry.otlp.endpoint", "want the address of a collector such as http://127.0.0.1:4318")
		case credentials:
			v.Failf("telemetry.otlp.endpoint", "must not hold a user or a password; give what the collector wants in telemetry.otlp.headers")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		path := fields.Join("telemetry.otlp.headers", name)
		switch {
		case !headerName.MatchString(name):
			v.Failf(path, "%q is no name of a header, want one such as authorization", name)
		case strings.ContainsFunc(o.Headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			v.Failf(path, "holds a line break or another control character, want one line")
		case o.Endpoint == "":
			v.Failf(path, "has no use without telemetry.otlp.endpoint")
		}
	}
}
