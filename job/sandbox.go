package job

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
)

// Sandbox is how a job is held: the zero value is what the host's configuration says. A job can ask for more than that
// and never for less.
type Sandbox struct {
	// `strict`: in namespaces of its own, which show nothing of the host but what is granted. `standard`: on the host,
	// held by Landlock and seccomp. `none`: with all that the scheduler's user may do, if the configuration allows it.
	Level SandboxLevel `json:"level,omitempty" yaml:"level,omitempty" words:"strict standard none" otherwise:"sandbox.level of the [configuration](config.md)"`
	// Files and folders that the job may read besides, absolute paths. Only what `sandbox.read` of the configuration
	// allows.
	Read []string `json:"read,omitempty" yaml:"read,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /srv/data" otherwise:"nothing besides"`
	// Files and folders that the job may change besides, absolute paths. Only what `sandbox.write` of the configuration
	// allows.
	Write []string `json:"write,omitempty" yaml:"write,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /srv/data" otherwise:"nothing besides"`
	// Files and folders that the job does not see, whatever else is granted, absolute paths.
	Hide []string `json:"hide,omitempty" yaml:"hide,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /srv/data" otherwise:"what the configuration hides"`
}

// Repository is a git repository, or several by a pattern, that a run may fetch from with the user's credentials.
type Repository struct {
	// The host and the path, such as `github.com/acme/site`; `*` stands for any text within a part of the path, a last part
	// `**` for one or more parts.
	Repository string `json:"repository" yaml:"repository" need:"a repository such as github.com/acme/site" match:"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?(/[A-Za-z0-9._~*?-]+)+$" is:"a repository" want:"a host and a path such as github.com/acme/site, github.com/acme/* or git.example.com:8443/group/**"`
	// Whether it may push, too.
	Push bool `json:"push,omitempty" yaml:"push,omitempty"`
}

// SandboxLevel is how firmly a run is held; "" leaves it to the configuration.
type SandboxLevel string

// The levels, the weakest first.
const (
	SandboxNone     SandboxLevel = "none"
	SandboxStandard SandboxLevel = "standard"
	SandboxStrict   SandboxLevel = "strict"
)

// SandboxStrongest is no level but the choice of one: the strongest that a host has. No job names it.
const SandboxStrongest SandboxLevel = "strongest"

// SandboxLevels lists every level, the weakest first.
func SandboxLevels() []SandboxLevel {
	return []SandboxLevel{SandboxNone, SandboxStandard, SandboxStrict}
}

// Weaker reports whether l holds less than m. An unknown level is the weakest.
func (l SandboxLevel) Weaker(m SandboxLevel) bool {
	return slices.Index(SandboxLevels(), l) < slices.Index(SandboxLevels(), m)
}

// Words of Spec.Network that stand alone.
const (
	NetworkNone = "none"
	NetworkFull = "full"
)

// NetworkPresets are the words of Spec.Network that stand for the hosts of one kind of client.
func NetworkPresets() []string { return []string{"crates", "github", "go", "npm", "pypi"} }

// networkHost is an entry of Spec.Network that is no word: a host, * for the hosts below one, an address; with a port or
// for the usual two.
var networkHost = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[0-9]{1,5})?$|^\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?$`)

// HasFullNetwork reports whether the job may reach any host.
func (s *Spec) HasFullNetwork() bool {
	return s.Can(CanUseNetwork) || slices.Equal(s.Network, []string{NetworkFull})
}

// NetworkHosts returns the hosts and presets that the job may reach; none if it may reach any or no host.
func (s *Spec) NetworkHosts() []string {
	if len(s.Network) == 1 && (s.Network[0] == NetworkNone || s.Network[0] == NetworkFull) {
		return nil
	}
	return s.Network
}

// Widen lets the job reach what the entries name, too.
func (s *Spec) Widen(entries []string) {
	if s.HasFullNetwork() || len(entries) == 0 {
		return
	}
	s.Network = slices.Clone(s.NetworkHosts())
	for _, entry := range entries {
		if !slices.Contains(s.Network, entry) {
			s.Network = append(s.Network, entry)
		}
	}
}

// ValidNetworkEntry says why an entry of Spec.Network that is neither none nor full cannot be meant, or returns nil.
func ValidNetworkEntry(entry string) error {
	switch {
	case slices.Contains(NetworkPresets(), entry):
	case !networkHost.MatchString(entry):
		return fmt.Errorf("%q is not a host, want one such as example.com, *.example.com or example.com:8443, a preset (%s), none or full", entry, strings.Join(NetworkPresets(), ", "))
	case !strings.ContainsAny(entry, ".:") && entry != "localhost":
		near := fields.Nearest(entry, append(NetworkPresets(), NetworkNone, NetworkFull))
		if near != "" {
			near = fmt.Sprintf("; did you mean %s?", near)
		}
		return fmt.Errorf("%q is neither a preset (%s) nor a host with a dot%s", entry, strings.Join(NetworkPresets(), ", "), near)
	}
	host, port, err := net.SplitHostPort(entry)
	if err != nil { // it has none
		host = strings.Trim(entry, "[]")
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has port %q, want a number of 1 to 65535", entry, port)
	}
	if _, err := netip.ParseAddr(host); err != nil && entry[0] == '[' {
		return fmt.Errorf("%q has no address in its brackets, want one such as [fd00::1] or [fd00::1]:8443", entry)
	}
	if domain, below := strings.CutPrefix(host, "*."); below && !strings.Contains(domain, ".") {
		return fmt.Errorf("%q covers all of .%s: name a domain below it, such as *.example.%s", entry, domain, domain)
	}
	return nil
}

// maxGrants bounds each list of what a job is granted.
const maxGrants = 256

// validateSandbox looks at what the job is granted. What of it the host allows is known to others.
func (s *Spec) validateSandbox(bad func(string, string, ...any)) {
	if len(s.Network) > 0 && s.Can(CanUseNetwork) {
		bad("network", "and the capability network are both given; the capability means `network: full`: leave one out")
	}
	for i, entry := range s.Network {
		at := fmt.Sprintf("network[%d]", i)
		switch {
		case entry == NetworkNone || entry == NetworkFull:
			if len(s.Network) > 1 {
				bad(at, "%q stands alone; leave the other entries out, or it", entry)
			}
		default:
			if err := ValidNetworkEntry(entry); err != nil {
				bad(at, "%v", err)
			}
		}
		if slices.Index(s.Network, entry) < i {
			bad(at, "%q is listed twice; remove one", entry)
		}
	}
	for _, list := range []struct {
		field string
		paths []string
	}{{"sandbox.read", s.Sandbox.Read}, {"sandbox.write", s.Sandbox.Write}, {"sandbox.hide", s.Sandbox.Hide}} {
		for i, path := range list.paths {
			at := fmt.Sprintf("%s[%d]", list.field, i)
			switch {
			case !OneLine(path):
				bad(at, "%q is not a path in one line", path)
			case filepath.IsAbs(path) && filepath.Clean(path) != path:
				bad(at, "%q is not in its shortest form, write %s", path, filepath.Clean(path))
			}
		}
	}
	for _, list := range []struct {
		field string
		n     int
	}{
		{"network", len(s.Network)}, {"secrets", len(s.Secrets)}, {"git", len(s.Git)},
		{"sandbox.read", len(s.Sandbox.Read)}, {"sandbox.write", len(s.Sandbox.Write)}, {"sandbox.hide", len(s.Sandbox.Hide)},
	} {
		if list.n > maxGrants {
			bad(list.field, "has %d entries, at most %d are allowed", list.n, maxGrants)
		}
	}
	for i, name := range s.Secrets {
		if slices.Index(s.Secrets, name) < i {
			bad(fmt.Sprintf("secrets[%d]", i), "%q is listed twice; remove one", name)
		}
	}
}
