package sandbox

import (
	"os"
	"path/filepath"
)

// SystemFiles are the files of the system that programs need to run, and no user's: what a run may read in any case.
// Programs below them may be executed.
func SystemFiles() []string {
	return []string{
		"/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt",
		"/proc", // where Landlock keeps closed what belongs to other processes
		// Of /sys all but the kernel's insides.
		"/sys/block", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/firmware", "/sys/fs", "/sys/hypervisor", "/sys/kernel/mm", "/sys/module",
		"/nix/store", "/run/current-system", "/gnu/store", // systems whose programs are there
		"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", // what /etc/resolv.conf leads to
		"/var/lib/ca-certificates", "/var/lib/alternatives", "/var/cache/fontconfig",
		"/var/lib/dpkg", "/var/lib/apt/lists", "/var/lib/rpm", "/var/lib/pacman/local", // which packages there are
	}
}

// SystemSecrets are the files among SystemFiles that only root may read. A run has no capabilities, but a run of root
// owns these.
func SystemSecrets() []string {
	if os.Getuid() != 0 {
		return nil
	}
	list := []string{
		"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/security/opasswd",
		"/etc/pki/tls/private", "/etc/letsencrypt", "/etc/kubernetes", "/etc/docker", "/etc/rancher",
		"/etc/wireguard", "/etc/openvpn", "/etc/ipsec.secrets", "/etc/ppp", "/etc/NetworkManager/system-connections", "/etc/krb5.keytab",
	}
	// Of these folders, which most systems have, only the files: with a hidden folder in it /etc could not be listed.
	for _, pattern := range []string{"/etc/sudoers.d/*", "/etc/ssl/private/*", "/etc/ssh/ssh_host_*_key"} {
		files, err := filepath.Glob(pattern)
		if err != nil { // only for a bad pattern
			panic(err)
		}
		list = append(list, files...)
	}
	return list
}
