package config

import (
	"net"
	"net/url"
	"strconv"

	"github.com/agentsched/agentsched/job"
)

// Fleet is how several schedulers share one queue.
type Fleet struct {
	// The database of the queue: `postgres://user@host/name?sslmode=verify-full` without a password,
	// `service=NAME` of the connection service file, `file:/path` or `env:NAME` with such an address in
	// it. `scheduler serve --store` sets it, too.
	Store string `json:"store,omitempty" otherwise:"none: the queue lies in the state directory"`
	// Where the other schedulers of the queue reach this one: IP address or `localhost`, and port. They
	// know each other by certificates that they make themselves.
	Listen string `json:"listen,omitempty" otherwise:"127.0.0.1 and any free port"`
	// What the others connect to, host and port, where that is not what is listened on.
	Advertise string `json:"advertise,omitempty" otherwise:"the address that is listened on"`
	// For how long a leader may be silent before another scheduler takes over, `1s` to `10m`.
	Lease job.Duration `json:"lease" min:"1s" max:"10m"`
	// For how long a node (`scheduler node`) may work on after this scheduler has answered it last, `1s` to
	// `10m`. After that its runs have `heartbeat.permit_validity` and the stages of `stop` to end, before their jobs go
	// on elsewhere.
	NodeLease job.Duration `json:"node_lease" min:"1s" max:"10m"`
	// Whether jobs run on this scheduler's own host, too; else on nodes alone. Those that work in a folder of
	// it wait then.
	Work bool `json:"work"`
	// On which of the hosts that can run a job it does: `spread`, the one of whose slots the least part
	// is taken; `pack`, the one with the largest part that has room: [placement](fleet.md#placement).
	Placement string `json:"placement" words:"spread pack"`
	// Where the files lie that attempts leave (patches, answers, sessions, logs): [files](fleet.md#files-of-attempts).
	Artifacts Artifacts `json:"artifacts"`
}

// Artifacts is where the files of attempts lie.
type Artifacts struct {
	// A bucket of an S3 service, the same for all schedulers of the queue.
	S3 *S3 `json:"s3,omitempty" otherwise:"none: the files lie in the database"`
}

// S3 is a bucket of a service that speaks S3.
type S3 struct {
	// The service: `https://` and its host, without a path; `http://` on the same host alone.
	Endpoint string `json:"endpoint,omitempty" need:"the address of the service such as https://s3.example.com"`
	// The bucket, which is there already.
	Bucket string `json:"bucket,omitempty" match:"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$" is:"a name of a bucket" want:"3 to 63 of a-z, 0-9, dots and dashes" need:"the name of a bucket that is there"`
	// What all keys begin with.
	Prefix string `json:"prefix" match:"^([A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*)?$" is:"a prefix of keys" want:"words with slashes between them, such as schedulers/agents"`
	// The region that requests are signed for.
	Region string `json:"region" match:"^[a-z0-9-]+$" is:"a name of a region" want:"a name such as eu-central-1"`
	// The id of the access key: `file:/path`, a file of mode 0600, or `env:NAME`.
	AccessKey string `json:"access_key,omitempty" secret:"true" match:"^(file:/.+|env:[A-Za-z_][A-Za-z0-9_]*)$" is:"where a key is found" want:"file:/path or env:NAME, not the key itself" need:"file:/path or env:NAME"`
	// The secret of the access key: `file:/path`, a file of mode 0600, or `env:NAME`.
	SecretKey string `json:"secret_key,omitempty" secret:"true" match:"^(file:/.+|env:[A-Za-z_][A-Za-z0-9_]*)$" is:"where a key is found" want:"file:/path or env:NAME, not the key itself" need:"file:/path or env:NAME"`
	// The authorities that the service's certificate may come from, in PEM.
	CAFile string `json:"ca_file,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /etc/agentsched/s3-ca.crt" otherwise:"those of the host"`
	// How requests name the bucket: `path`, behind the host; `host`, before its name; `auto`: as the service is known to want it,
	// else `path`.
	Addressing string `json:"addressing" words:"auto path host"`
}

// SetDefaults implements fields.Defaulter.
func (s *S3) SetDefaults() { s.Region, s.Addressing = "us-east-1", "auto" }

func (v *validator) fleet() {
	f := v.config.Fleet
	v.listen("fleet.listen", f.Listen)
	if f.Advertise != "" {
		host, port, err := net.SplitHostPort(f.Advertise)
		n, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil || n == 0 || host == "" {
			v.Failf("fleet.advertise", "%q is no address that others can connect to, want host and port such as scheduler-a.example.com:7434", f.Advertise)
		}
	}
	if f.Store != "" && v.config.Heartbeat.PermitValidity == 0 {
		v.Failf("heartbeat.permit_validity", "is 0s, by which runs would go on beside the next leader's; want a duration such as 1m")
	}
	if f.Artifacts.S3 != nil {
		v.s3("fleet.artifacts.s3", f.Artifacts.S3)
	}
}

// s3 refuses an endpoint by which others could read what is kept, or that holds more than an address.
func (v *validator) s3(path string, s *S3) {
	if s.Endpoint == "" {
		return // it is missing, which is said already
	}
	u, err := url.Parse(s.Endpoint)
	switch web, credentials := isWeb(s.Endpoint); {
	case !web:
		v.Failf(path+".endpoint", "want the address of the service such as https://s3.example.com")
	case credentials:
		v.Failf(path+".endpoint", "must not hold a user or a key; name where they are found in access_key and secret_key")
	case err == nil && (u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != ""):
		v.Failf(path+".endpoint", "%q has more than a host and a port, want one such as https://s3.example.com; the bucket and a prefix are fields of their own", s.Endpoint)
	case err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()):
		v.Failf(path+".endpoint", "%q would have files cross the network in the clear, want https", s.Endpoint)
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
