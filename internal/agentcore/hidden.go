package agentcore

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// hiddenOfHome are files and folders below a home that no confined run sees, whatever
// else of the home it does: what proves to others who the user is, and what the user
// has done. They are patterns of filepath.Match.
var hiddenOfHome = []string{
	// keys, and logins of tools
	".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/hub", ".config/glab-cli", ".kube", ".docker",
	".config/containers", ".netrc", "_netrc", ".git-credentials", ".config/git/credentials", ".password-store", ".vault-token", ".config/op",
	".config/rclone", ".config/doctl", ".terraform.d", ".terraformrc", ".pgpass", ".my.cnf",
	// tokens of package registries
	".npmrc", ".yarnrc.yml", ".pypirc", ".pip", ".config/pip", ".cargo/credentials*", ".gem/credentials", ".local/share/gem/credentials", ".bundle/config",
	".m2/settings*.xml", ".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json", ".nuget/NuGet", ".local/share/uv/credentials",
	// logins of agents; a run that may see its own is given that by name
	".codex/auth.json", ".claude/.credentials.json", ".claude.json", ".local/share/opencode/auth.json", ".gemini", ".config/github-copilot",
	// keyrings, browsers, mail
	".local/share/keyrings", ".gnome2/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet", "Library/Keychains", "Library/Cookies",
	".mozilla", ".config/google-chrome*", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge*", ".config/vivaldi*", ".thunderbird",
	"Library/Application Support/Google/Chrome", "Library/Application Support/Firefox", "Library/Safari",
	// histories
	".*_history", ".lesshst", ".local/share/fish/fish_history", ".local/share/atuin",
}

// hiddenOfHost are those of the system: password hashes, host keys, sockets of services,
// other containers.
var hiddenOfHost = []string{
	"/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/ssh/*_key", "/etc/ssl/private", "/run", "/var/run",
	"/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/spool/cron", "/var/mail", "/var/spool/mail",
}

// Hidden returns the patterns of filepath.Glob of what no confined run sees, below the
// user's home and of the host. Only what an adapter names (worker.Command.Read and Write)
// goes above it.
func Hidden(home string) []string {
	var all []string
	for _, pattern := range hiddenOfHome {
		all = append(all, filepath.Join(home, filepath.FromSlash(pattern)))
	}
	return append(all, hiddenOfHost...)
}

// hiddenPaths returns what there is of Hidden, but for what sandbox.SystemSecrets has.
func hiddenPaths(home string) ([]string, error) {
	var list []string
	for _, pattern := range Hidden(home) {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("hide %s: %w", pattern, err)
		}
		for _, path := range paths {
			if !belowAny(path, []string{"/etc"}) {
				list = append(list, path)
			}
		}
	}
	return list, nil
}

// showsHidden reports whether path is hidden, lies in what is, or holds something that
// is: then a run cannot be given it as a whole.
func showsHidden(path string, hidden []string) bool {
	path = filepath.Clean(path)
	return path == string(filepath.Separator) || slices.ContainsFunc(hidden, func(pattern string) bool { return sameWay(pattern, path) })
}

// sameWay reports whether a pattern matches a path as far as both go. It is asked some thousand times for each process that a
// run starts.
func sameWay(pattern, path string) bool {
	for more := true; more; {
		var of, part string
		var longer bool
		of, pattern, more = strings.Cut(pattern, string(filepath.Separator))
		part, path, longer = strings.Cut(path, string(filepath.Separator))
		if of != part {
			if !strings.ContainsAny(of, `*?[\`) {
				return false
			}
			if ok, err := filepath.Match(of, part); !ok && err == nil {
				return false
			}
		}
		more = more && longer
	}
	return true
}
