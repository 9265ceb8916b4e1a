package egress

import "fmt"

// Preset is a list of hosts under one name.
type Preset struct {
	Name  string
	About string   // a sentence for people
	Hosts []string // entries as Parse takes them; without a port 443 is meant
}

// Presets returns those that there are. A preset lets data out as well as in: whoever
// has an account there can upload to it.
func Presets() []Preset {
	return []Preset{
		{"go", "Go modules, their checksums and Go toolchains, from the public proxy.",
			// The proxy redirects to the storage for large archives.
			[]string{"proxy.golang.org", "sum.golang.org", "storage.googleapis.com"}},
		{"npm", "Packages of the npm registry, and the headers of Node that native ones are built with.",
			[]string{"registry.npmjs.org", "nodejs.org"}},
		{"pypi", "Packages of the Python Package Index.",
			[]string{"pypi.org", "files.pythonhosted.org"}},
		{"crates", "Rust crates of crates.io, by its sparse index.",
			[]string{"index.crates.io", "static.crates.io", "crates.io"}},
		{"github", "Repositories of GitHub by git over https, its API, archives and release files.",
			[]string{"github.com", "api.github.com", "codeload.github.com", "*.githubusercontent.com"}},
	}
}

func (p Preset) rules() ([]rule, error) {
	var all []rule
	for _, host := range p.Hosts {
		rules, err := parseEntry(host, nil)
		if err != nil {
			return nil, fmt.Errorf("is a preset whose host %q %w", host, err)
		}
		for _, r := range rules {
			if !r.named {
				r.ports = []uint16{443}
			}
			r.named = false
			all = append(all, r)
		}
	}
	return all, nil
}
