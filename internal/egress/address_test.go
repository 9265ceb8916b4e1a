package egress

import (
	"net/netip"
	"testing"
)

func TestReach(t *testing.T) {
	for text, want := range map[string]reach{
		"8.8.8.8": public, "1.1.1.1": public, "2606:4700::1111": public, "172.32.0.1": public, "100.128.0.1": public,
		"64:ff9b::808:808": public, "::ffff:8.8.8.8": public,

		"10.0.0.1": private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private,
		"100.64.0.1": private, "fd00::1": private, "fc00::1": private, "::ffff:10.0.0.1": private,
		"64:ff9b::a00:1": private,

		"127.0.0.1": loopback, "127.255.0.1": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback,
		"64:ff9b::7f00:1": loopback,

		"0.0.0.0": never, "0.1.2.3": never, "::": never, "169.254.169.254": never, "169.254.1.1": never,
		"::ffff:169.254.169.254": never, "64:ff9b::a9fe:a9fe": never, "fe80::1": never, "fec0::1": never,
		"fd00:ec2::254": never, "100.100.100.200": never, "168.63.129.16": never, "192.0.0.192": never,
		"224.0.0.1": never, "239.1.1.1": never, "240.0.0.1": never, "255.255.255.255": never, "ff02::1": never,
		"198.18.0.1": never, "192.0.2.1": never, "198.51.100.1": never, "203.0.113.1": never, "192.88.99.1": never,
		"2001:db8::1": never, "3fff::1": never, "2001::1": never, "2001:0:7f00:1::": never, "2001:2::1": never,
		"2002:7f00:1::": never, "2002:a00:1::1": never, "::127.0.0.1": never, "::10.0.0.1": never,
		"64:ff9b:1::a00:1": never, "100::1": never, "5f00::1": never, "::ffff:0:127.0.0.1": never,
	} {
		if got := reachOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	if got := reachOf(netip.Addr{}); got != never {
		t.Errorf("no address: %d, want %d", got, never)
	}
}
