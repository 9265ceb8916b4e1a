package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// API is how others reach a running scheduler beside its unix socket.
type API struct {
	Listen string `json:"listen,omitempty"` // host and port; "": only the unix socket
	TLS    TLS    `json:"tls,omitzero"`
	// Hosts are the names, without ports, by which requests may call this host
	// beside its own addresses and localhost.
	Hosts   []string   `json:"hosts,omitempty"`
	Rate    ClientRate `json:"rate"`
	MaxBody Size       `json:"max_body"` // of a request
	// Files is the folder in which a job file of a request may name files, absolute
	// once read; "" means none.
	Files string `json:"files,omitempty"`
}

// TLS names PEM files; both or none.
type TLS struct {
	Cert string `json:"cert,omitempty"` // the chain, the host's own first
	Key  string `json:"key,omitempty"`
}

// ClientRate bounds the requests of each client.
type ClientRate struct {
	PerSecond float64 `json:"per_second"` // in the long run; 0: no bound
	Burst     int     `json:"burst"`      // at once
}

// Log says which lines are written, and how.
type Log struct {
	Format logging.Format                      `json:"format"` // of standard error
	Level  logging.Level                       `json:"level"`
	Levels map[logging.Component]logging.Level `json:"levels,omitempty"` // instead of Level
}

// Telemetry is where traces go.
type Telemetry struct {
	OTLP OTLP `json:"otlp,omitzero"`
}

// OTLP is a collector that takes OTLP over HTTP.
type OTLP struct {
	Endpoint string            `json:"endpoint,omitempty"` // "": none
	Headers  map[string]string `json:"headers,omitempty"`  // of each request; their values are secrets
}

// Audit is the record of who did what.
type Audit struct {
	Enabled bool `json:"enabled"`
	MaxSize Size `json:"max_size"` // of a file
	Keep    int  `json:"keep"`     // files that are full
}

const (
	// leastBody is enough for every request but large job files.
	leastBody Size = 64 << 10
	maxBody   Size = 1 << 30
	// leastAudit holds some thousand records: a file is not worth its name below.
	leastAudit Size = 1 << 20
)

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
	for i, host := range a.Hosts {
		path := fmt.Sprintf("api.hosts[%d]", i)
		if _, err := netip.ParseAddr(host); err != nil && !hostName.MatchString(host) {
			v.Failf(path, "%q is no name of a host, want one without scheme and port such as scheduler.example.com", host)
		}
	}
	if a.Rate.PerSecond < 0 {
		v.Failf("api.rate.per_second", "is %g, want requests per second, or 0 for no bound", a.Rate.PerSecond)
	}
	if a.Rate.Burst < 1 {
		v.Failf("api.rate.burst", "is %d, want 1 or more: with less no request would ever pass", a.Rate.Burst)
	}
	if a.Files != "" && (filepath.Clean(a.Files) == "/" || job.InKernel(a.Files)) {
		v.Failf("api.files", "%q holds more than job files; want a folder for them such as /srv/jobs", a.Files)
	}
	if a.MaxBody < leastBody || a.MaxBody > maxBody {
		v.Failf("api.max_body", "is %s, want %s to %s", a.MaxBody, leastBody, maxBody)
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

func (v *validator) log() {
	l := v.config.Log
	if !slices.Contains(logging.Formats(), l.Format) {
		v.Failf("log.format", "%q is unknown, want one of %s", l.Format, words(logging.Formats()))
	}
	v.logLevel("log.level", l.Level)
	for _, c := range slices.Sorted(maps.Keys(l.Levels)) {
		path := strictyaml.Entry("log.levels", string(c))
		if !slices.Contains(logging.Components(), c) {
			v.component(path, c)
			continue
		}
		v.logLevel(path, l.Levels[c])
	}
}

func (v *validator) logLevel(path string, level logging.Level) {
	if _, err := logging.ParseLevel(string(level)); err != nil {
		v.Failf(path, "%v", err)
	}
}

// component refuses a name that is no component's.
func (v *validator) component(path string, c logging.Component) {
	var known []string
	for _, one := range logging.Components() {
		known = append(known, string(one))
	}
	if near := strictyaml.Nearest(string(c), known); near != "" {
		v.Failf(path, "%q is no component; did you mean %s?", c, near)
		return
	}
	v.Failf(path, "%q is no component, want one of %s", c, strings.Join(known, ", "))
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
		path := strictyaml.Entry("telemetry.otlp.headers", name)
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

func (v *validator) audit() {
	a := v.config.Audit
	if a.MaxSize < leastAudit {
		v.Failf("audit.max_size", "is %s, want %s or more", a.MaxSize, leastAudit)
	}
	if a.Keep < 1 {
		v.Failf("audit.keep", "is %d, want how many full files are kept, 1 or more", a.Keep)
	}
}
