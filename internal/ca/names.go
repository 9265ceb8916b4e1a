package ca

import (
	"fmt"
	"net/netip"
	"regexp"
)

var (
	fileName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	// hostName is a name of DNS: RFC 1123, section 2.1.
	hostName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
)

// CheckName returns why a certificate cannot have a name.
func CheckName(name string) error {
	if name == authorityName {
		return fmt.Errorf("certificate %q has the name of the authority's own: give it another one, such as that of its host", name)
	}
	if !fileName.MatchString(name) {
		return fmt.Errorf("certificate %q: its name must be 1 to 63 letters, digits, points, dashes and underscores, with a letter or a digit at both ends", name)
	}
	return nil
}

// CheckHost returns why a certificate cannot be for a host.
func CheckHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" && !ip.IsUnspecified() {
		return nil
	}
	if _, err := netip.ParseAddr(host); err == nil || len(host) > 253 || !hostName.MatchString(host) {
		return fmt.Errorf("host %q is no name or address that clients call a scheduler by, want one without scheme and port such as scheduler.example.com or 10.0.0.1", host)
	}
	return nil
}
