package egress

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestAllow(t *testing.T) {
	for _, c := range []struct {
		entries string // comma between them
		host    string
		port    uint16
		want    bool
	}{
		{"example.com", "example.com", 443, true},
		{"example.com", "example.com", 80, true},
		{"example.com", "example.com", 22, false},
		{"example.com", "EXAMPLE.com.", 443, true},
		{"EXAMPLE.com", "example.com", 443, true},
		{"example.com", "www.example.com", 443, false},
		{"example.com", "badexample.com", 443, false},
		{"*.example.com", "a.example.com", 443, true},
		{"*.example.com", "a.b.example.com", 443, true},
		{"*.example.com", "example.com", 443, false},
		{"*.example.com", "badexample.com", 443, false},
		{"*.example.com:8443", "a.example.com", 8443, true},
		{"*.example.com:8443", "a.example.com", 443, false},
		{"example.com:8443", "example.com", 8443, true},
		{"example.com:8443", "example.com", 443, false},
		{"example.com:8443,example.com", "example.com", 443, true},
		{"10.0.0.5:5432", "10.0.0.5", 5432, true},
		{"10.0.0.5:5432", "10.0.0.6", 5432, false},
		{"10.0.0.5:5432", "::ffff:10.0.0.5", 5432, true},
		{"10.0.0.5", "10.0.0.5", 80, true},
		{"[::1]:8080", "::1", 8080, true},
		{"[::1]:8080", "[0:0:0:0:0:0:0:1]", 8080, true},
		{"[::1]", "::1", 443, true},
		{"::1", "::1", 443, true},
		{"localhost:5432", "localhost", 5432, true},
		{"localhost:5432", "127.0.0.1", 5432, false},
		{"go", "proxy.golang.org", 443, true},
		{"go", "proxy.golang.org", 80, false},
		{"npm,pypi", "pypi.org", 443, true},
		{"github", "raw.githubusercontent.com", 443, true},
		{"github", "gist.github.com", 443, false},
		{"", "example.com", 443, false},
		{"example.com", "example.com\x00", 443, false},
		{"example.com", "", 443, false},
	} {
		r, err := Parse(strings.FieldsFunc(c.entries, func(r rune) bool { return r == ',' }), Presets())
		if err != nil {
			t.Errorf("%s: %v", c.entries, err)
		}
		if got := r.Allow(c.host, c.port); got != c.want {
			t.Errorf("%q allows %q port %d: %v, want %v", c.entries, c.host, c.port, got, c.want)
		}
	}
}

func TestEntriesThatAreNone(t *testing.T) {
	for entry, want := range map[string]string{
		"":                                "write a host such as example.com",
		"full":                            "stands alone: write network: full",
		"none":                            "stands alone: write network: none",
		"gihub":                           "did you mean github?",
		"crate":                           "did you mean crates?",
		"somewhere":                       "write one of go, npm, pypi, crates, github, or a host with its port, such as localhost:8080",
		"*":                               "write network: full, or name the hosts",
		"*:443":                           "write network: full, or name the hosts",
		"*.com":                           "name a domain below it, such as *.example.com",
		"a.*.com":                         `has '*' in its host`,
		"*example.com":                    `has '*' in its host`,
		"https://example.com":             "without scheme and path",
		"10.0.0.0/8":                      "or one address",
		"example.com:":                    `has port "", want a number of 1 to 65535`,
		"example.com:0":                   `has port "0", want`,
		"example.com:65536":               `has port "65536", want`,
		"example.com:0443":                `has port "0443", want`,
		"example.com:https":               `has port "https", want`,
		"1:2:3":                           "write it as [::1]:8080",
		"[::1":                            "write it as [::1]:8080",
		"[::1]8080":                       "goes on behind the bracket",
		"[example.com]:80":                "write it as [::1]:8080",
		"[fe80::1%eth0]:80":               "has a zone",
		"127.1":                           "ends like one: write it as 10.0.0.5",
		"0x7f000001:80":                   "ends like one",
		"2130706433:80":                   "ends like one",
		"0177.0.0.1":                      "ends like one",
		"a..example.com":                  "has a label of no or more than 63 characters",
		"münchen.example":                 "other scripts as xn--",
		"example.com\nfoo":                `has '\n' in its host`,
		"user@example.com":                `has '@' in its host`,
		strings.Repeat("a.", 200) + "com": "more than 253 characters",
	} {
		_, err := Parse([]string{"example.com", entry}, Presets())
		var e *EntryError
		if !errors.As(err, &e) || e.Index != 1 || e.Entry != entry || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want the entry and %q", entry, err, want)
		}
	}
	if _, err := Parse(make([]string, maxEntries+1), nil); err == nil || !strings.Contains(err.Error(), "want at most 1000") {
		t.Errorf("too many entries: %v", err)
	}
	_, err := Parse([]string{"gihub", "*"}, Presets())
	if text := err.Error(); !strings.Contains(text, "gihub") || !strings.Contains(text, `"*"`) {
		t.Errorf("of two mistakes: %v", err)
	}
}

func TestPresets(t *testing.T) {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
		r, err := Parse([]string{p.Name}, Presets())
		if err != nil || p.About == "" {
			t.Errorf("%s: %v, about %q", p.Name, err, p.About)
		}
		for _, host := range p.Hosts {
			if host = strings.Replace(host, "*", "x", 1); !r.Allow(host, 443) || r.Allow(host, 80) {
				t.Errorf("%s: %s is to be allowed by https alone", p.Name, host)
			}
		}
	}
	if want := []string{"go", "npm", "pypi", "crates", "github"}; !slices.Equal(names, want) {
		t.Errorf("presets %v, want %v", names, want)
	}
	broken := []Preset{{Name: "ours", Hosts: []string{"*"}}}
	if _, err := Parse([]string{"ours"}, broken); err == nil || !strings.Contains(err.Error(), `is a preset whose host "*"`) {
		t.Errorf("a broken preset: %v", err)
	}
}

// FuzzParse: an entry that is taken allows its own host, and what is reported as the
// entry that would allow a target does so.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"example.com", "*.example.com:8443", "[::1]:8080", "10.0.0.5:5432", "go", "localhost:1", "a_b.c", "::ffff:1.2.3.4", "xn--a.b.:9"} {
		f.Add(seed, uint16(443))
	}
	f.Fuzz(func(t *testing.T, entry string, port uint16) {
		r, err := Parse([]string{entry}, Presets())
		if err == nil {
			for _, rule := range r.rules {
				host := rule.host
				if rule.below {
					host = "x." + host
				} else if rule.addr.IsValid() {
					host = rule.addr.String()
				}
				if len(host) <= 253 && !r.Allow(host, rule.ports[0]) {
					t.Errorf("%q does not allow %q port %d", entry, host, rule.ports[0])
				}
			}
		}
		if port == 0 {
			return
		}
		target, err := newTarget(entry, port)
		if err != nil {
			return
		}
		r, err = Parse([]string{target.entry()}, Presets())
		if err != nil || !r.Allow(entry, port) {
			t.Errorf("%q: the entry %q does not allow it: %v", entry, target.entry(), err)
		}
	})
}
