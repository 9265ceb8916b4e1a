package egress

import (
	"net/netip"
	"slices"
)

// reach is who may connect to an address.
type reach int

const (
	public   reach = iota // whoever may reach the host
	private               // hosts that were named with their port, and what Config.Private opens
	loopback              // the name localhost with its port
	never                 // the address itself, named in the rules
)

// metadata are the addresses at which clouds tell their machines, and so a run on
// them, about themselves, credentials included, outside of the link-local range.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure; a public address
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// metadataNames are names of such addresses, for proxies that resolve themselves.
var metadataNames = []string{"metadata.google.internal", "metadata.goog", "metadata", "instance-data"}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

var (
	privateRanges = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", // RFC 1918
		"100.64.0.0/10", // carriers' NAT, RFC 6598
		"fc00::/7")      // RFC 4193
	// neverRanges are no hosts of anybody's: the special-purpose registries of IANA
	// (RFC 6890), those of benchmarks, documentation, multicast and tunnels included.
	neverRanges = prefixes("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
		"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23",     // Teredo, ORCHID, benchmarks
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4
		"3fff::/20")     // documentation
	// unicast is all that IPv6 hands out; what lies outside and is not listed is refused.
	unicast = netip.MustParsePrefix("2000::/3")
	// nat64 ends in an IPv4 address (RFC 6052).
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// reachOf classifies an address, by the IPv4 address in it if it is mapped or NAT64's.
func reachOf(a netip.Addr) reach {
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case slices.Contains(metadata, a) || slices.ContainsFunc(neverRanges, in):
		return never
	case a.IsLoopback():
		return loopback
	case slices.ContainsFunc(privateRanges, in):
		return private
	case !a.IsValid() || a.Is6() && !unicast.Contains(a):
		return never
	}
	return public
}
