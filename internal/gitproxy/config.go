package gitproxy

import (
	"fmt"
	"slices"
	"strings"
)

// GitConfig returns the settings, as name and value, by which git in a run uses
// the proxy at an endpoint, e.g. "http://127.0.0.1:4711", for the repositories in
// allow. key is the run's. Addresses of ssh are led there, too.
//
// Git can only compare the beginning of an address: of a pattern it gets what
// stands before the first * or ?, so that other repositories below that are
// asked for at the proxy, which refuses them.
func GitConfig(allow []Repo, endpoint, key string) [][2]string {
	at := strings.TrimSuffix(endpoint, "/") + Prefix
	config := [][2]string{
		{"http." + at + ".extraHeader", "Authorization: Bearer " + key},
		{"http." + at + ".proxy", ""},        // not through the run's HTTP proxy
		{"credential." + at + ".helper", ""}, // nothing to ask for
	}
	for _, r := range allow {
		from := bare(r.Path)
		if i := strings.IndexAny(from, `*?[`); i >= 0 {
			from = from[:strings.LastIndexByte(from[:i], '/')+1]
		}
		name, _, port := strings.Cut(r.Host, ":")
		forms := []string{"https://" + r.Host + "/"}
		if !port {
			forms = append(forms, "ssh://git@"+name+"/", "git@"+name+":")
		}
		for _, form := range forms {
			if item := [2]string{"url." + at + r.Host + "/" + from + ".insteadOf", form + from}; !slices.Contains(config, item) {
				config = append(config, item)
			}
		}
	}
	return config
}

// Environ returns settings as the variables of git-config(1), NAME=VALUE:
// GIT_CONFIG_COUNT and one GIT_CONFIG_KEY_n and GIT_CONFIG_VALUE_n each.
func Environ(config [][2]string) []string {
	env := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(config))}
	for i, item := range config {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, item[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, item[1]))
	}
	return env
}
