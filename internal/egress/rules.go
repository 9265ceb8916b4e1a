package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
)

// maxEntries is how many entries a job's list may have: each request is compared with
// all of them.
const maxEntries = 1000

// webPorts are those of an entry that names none.
var webPorts = []uint16{80, 443}

// Rules say which hosts may be reached. They do not change. The zero value allows none.
type Rules struct {
	rules   []rule
	presets []Preset
}

// rule allows the ports of a host, an address, or the subdomains of a host.
type rule struct {
	host  string     // a name in lower case, without the "*." of subdomains
	addr  netip.Addr // valid: this address, and host is empty
	below bool       // the names below host, at any depth, and not host itself
	ports []uint16
	// named means that host and port were written as such. It may be a private service.
	named bool
}

// EntryError is an entry that cannot be used. Its text names the entry, what is wrong
// with it, and what would be right.
type EntryError struct {
	Index int // in the list, from 0
	Entry string
	Why   string
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("network entry %.200q %s", e.Entry, e.Why)
}

// Parse reads the list of a job's network field. An entry is the name of one of the
// presets, a host ("example.com"), the hosts below one ("*.example.com") or an address
// ("10.0.0.5", "::1"), each but the first with a port if it is not to be 80 and 443
// ("example.com:8443", "[::1]:8080"). The error joins an *EntryError for each entry
// that is none of these.
func Parse(entries []string, presets []Preset) (Rules, error) {
	r := Rules{presets: presets}
	if len(entries) > maxEntries {
		return r, fmt.Errorf("network has %d entries, want at most %d", len(entries), maxEntries)
	}
	var errs []error
	for i, entry := range entries {
		rules, err := parseEntry(entry, presets)
		if err != nil {
			errs = append(errs, &EntryError{Index: i, Entry: entry, Why: err.Error()})
		}
		r.rules = append(r.rules, rules...)
	}
	if err := errors.Join(errs...); err != nil {
		return Rules{presets: presets}, err
	}
	return r, nil
}

// With returns the rules and those of more entries. Entries that cannot be used are left
// out; the error names them.
func (r Rules) With(entries []string) (Rules, error) {
	rules := slices.Clone(r.rules)
	var errs []error
	for _, entry := range entries {
		more, err := Parse([]string{entry}, r.presets)
		rules, errs = append(rules, more.rules...), append(errs, err)
	}
	return Rules{rules: rules, presets: r.presets}, errors.Join(errs...)
}

func parseEntry(entry string, presets []Preset) ([]rule, error) {
	if i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == entry }); i >= 0 {
		return presets[i].rules()
	}
	switch {
	case entry == "none" || entry == "full":
		return nil, fmt.Errorf("stands alone: write network: %s", entry)
	case entry == "":
		return nil, errors.New("is empty: write a host such as example.com")
	case entry == "*" || strings.HasPrefix(entry, "*:"):
		return nil, errors.New("means every host: write network: full, or name the hosts")
	case strings.Contains(entry, "/"):
		return nil, errors.New("is neither a host nor an address: write a host such as example.com, without scheme and path, or one address")
	}
	host, port, err := splitEntry(entry)
	if err != nil {
		return nil, err
	}
	r := rule{ports: webPorts, named: port != 0}
	if port != 0 {
		r.ports = []uint16{port}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return nil, errors.New("has a zone: write the address without %" + "zone")
		}
		r.addr = addr.Unmap()
		return []rule{r}, nil
	}
	if name, ok := strings.CutPrefix(host, "*."); ok {
		host, r.below, r.named = name, true, false
		if !strings.Contains(host, ".") {
			return nil, fmt.Errorf("covers all of .%s: name a domain below it, such as *.example.%s", host, host)
		}
	}
	if !r.below && port == 0 && !strings.Contains(host, ".") {
		return nil, errors.New("is no preset; " + meant(entry, presets))
	}
	if r.host, err = cleanName(host); err != nil {
		return nil, err
	}
	return []rule{r}, nil
}

// meant says what may have been meant by a word that is no preset.
func meant(word string, presets []Preset) string {
	var names []string
	for _, p := range presets {
		names = append(names, p.Name)
	}
	also := "write one of " + strings.Join(names, ", ") + ", or a host with its port, such as localhost:8080"
	if near := fields.Nearest(word, names); near != "" {
		return "did you mean " + near + "? Else " + also
	}
	return also
}

// splitEntry returns the host of an entry and its port, 0 if it has none.
func splitEntry(entry string) (host string, port uint16, err error) {
	host, text := entry, ""
	switch rest, bracket := strings.CutPrefix(entry, "["); {
	case bracket:
		var closed bool
		if host, text, closed = strings.Cut(rest, "]"); !closed || !strings.Contains(host, ":") {
			return "", 0, errors.New("has a bracket that belongs to no IPv6 address: write it as [::1]:8080")
		}
		if text == "" {
			return host, 0, nil
		}
		if text, closed = strings.CutPrefix(text, ":"); !closed {
			return "", 0, errors.New("goes on behind the bracket: write it as [::1]:8080")
		}
	case strings.Count(entry, ":") > 1:
		if _, err := netip.ParseAddr(entry); err != nil {
			return "", 0, errors.New("is no IPv6 address: with a port, write it as [::1]:8080")
		}
		return entry, 0, nil
	default:
		var colon bool
		if host, text, colon = strings.Cut(entry, ":"); !colon {
			return host, 0, nil
		}
	}
	if port, err = parsePort(text); err != nil {
		return "", 0, fmt.Errorf("has port %.20q, want a number of 1 to 65535", text)
	}
	return host, port, nil
}

// parsePort reads a port in its only spelling.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text != strconv.FormatUint(n, 10) {
		return 0, fmt.Errorf("port %.20q, want a number of 1 to 65535", text)
	}
	return uint16(n), nil
}

// cleanName returns a host's name in lower case and without the dot at its end. What a
// resolver could read as an address in another spelling (127.1, 0x7f000001) is an error.
func cleanName(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > 253 {
		return "", errors.New("has a host of no or more than 253 characters: write a host such as example.com")
	}
	var last string
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "", errors.New("has a label of no or more than 63 characters: write a host such as example.com")
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", fmt.Errorf("has %q in its host: write letters, digits, - and dots (other scripts as xn--…), and * only in front, as in *.example.com", rune(c))
			}
		}
		last = label
	}
	if last[0] >= '0' && last[0] <= '9' {
		return "", errors.New("is no address and ends like one: write it as 10.0.0.5")
	}
	return name, nil
}

// Allow says whether the rules name a host, by its name or address, with this port.
// What the host resolves to is the proxy's to check.
func (r Rules) Allow(host string, port uint16) bool {
	t, err := newTarget(host, port)
	if err != nil {
		return false
	}
	_, ok := r.match(t)
	return ok
}

// match returns the rule that says the most about a target.
func (r Rules) match(t target) (best rule, ok bool) {
	for _, rule := range r.rules {
		if slices.Contains(rule.ports, t.port) && rule.covers(t) && (!ok || rule.named) {
			best, ok = rule, true
		}
	}
	return best, ok
}

func (r rule) covers(t target) bool {
	switch {
	case t.addr.IsValid() || r.addr.IsValid():
		return t.addr == r.addr
	case r.below:
		return strings.HasSuffix(t.name, "."+r.host)
	}
	return t.name == r.host
}

// target is where a request wants to go.
type target struct {
	name string     // as cleanName returns it; of an address its text
	addr netip.Addr // valid if the host is an address; unmapped
	port uint16
}

// newTarget reads a host, which may be an address in brackets.
func newTarget(host string, port uint16) (target, error) {
	bare := host
	if inner, ok := strings.CutPrefix(host, "["); ok {
		bare = strings.TrimSuffix(inner, "]")
	}
	if addr, err := netip.ParseAddr(bare); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return target{name: addr.String(), addr: addr, port: port}, nil
	}
	name, err := cleanName(host)
	if err != nil {
		return target{}, fmt.Errorf("host %.100q %w", host, err)
	}
	return target{name: name, port: port}, nil
}

// String returns the target in the form of an entry.
func (t target) String() string {
	if t.addr.Is6() {
		return fmt.Sprintf("[%s]:%d", t.name, t.port)
	}
	return fmt.Sprintf("%s:%d", t.name, t.port)
}

// entry returns what to write in a job's list to allow the target.
func (t target) entry() string {
	if slices.Contains(webPorts, t.port) && strings.Contains(t.name, ".") {
		return t.name
	}
	return t.String()
}
