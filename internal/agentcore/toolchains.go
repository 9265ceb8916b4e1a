package agentcore

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// toolchains are folders below a home that hold programs and what they need to run.
var toolchains = []string{
	"go/bin", "go/pkg/mod", "sdk", ".cargo/bin", ".rustup", ".nvm", ".volta", ".fnm", ".local/share/fnm", ".npm-global", ".deno/bin", ".bun/bin", ".local/share/pnpm",
	".pyenv", ".local/bin", ".local/lib", ".local/share/pipx", ".local/share/uv/python", ".local/share/uv/tools",
	".asdf", ".local/share/mise", ".sdkman", ".rbenv", ".dotnet", "miniconda3", "anaconda3",
}

// Toolchains returns the files and folders, read-only, that a confined run needs of the
// user's home to build, and that exist: well-known ones, those on the search path, which
// getenv finds in PATH, and what programs need, each the absolute path of a worker's
// program. None of them holds anything Hidden. Where a link leads, both ends are
// returned. The list is sorted.
func Toolchains(home string, getenv func(name string) string, programs ...string) []string {
	var found []string
	hidden := Hidden(home)
	add := func(path string) {
		real, err := filepath.EvalSymlinks(path)
		if path = filepath.Clean(path); err != nil || !filepath.IsAbs(path) || showsHidden(path, hidden) || showsHidden(real, hidden) {
			return
		}
		for _, p := range []string{path, real} {
			if !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	for _, folder := range toolchains {
		add(filepath.Join(home, filepath.FromSlash(folder)))
	}
	for _, entry := range filepath.SplitList(getenv("PATH")) {
		if below(home, entry) {
			add(entry)
			add(prefix(entry))
		}
	}
	for _, l := range locators {
		add(getenv(l.variable))
	}
	for _, name := range []string{"GOROOT", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"} {
		add(getenv(name))
	}
	for _, program := range programs {
		for _, path := range programFiles(program) {
			add(path)
		}
	}
	slices.Sort(found)
	return found
}

// below reports whether path lies below folder.
func below(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// prefix returns the folder that a folder of programs belongs to, with the libraries that
// they load, e.g. ~/venv of ~/venv/bin; "" if it has none.
func prefix(bin string) string {
	parent := filepath.Dir(filepath.Clean(bin))
	if filepath.Base(bin) != "bin" {
		return ""
	}
	if info, err := os.Stat(filepath.Join(parent, "lib")); err != nil || !info.IsDir() {
		return ""
	}
	return parent
}

// programFiles returns what the program at path needs to be there to start: itself, what
// it is a link to, and the folder of that or, of a package of npm, all that was
// installed with it.
func programFiles(path string) []string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	files := []string{path, real}
	const modules = string(filepath.Separator) + "node_modules" + string(filepath.Separator)
	if i := strings.Index(real, modules); i >= 0 {
		return append(files, real[:i+len(modules)-1])
	}
	folder := filepath.Dir(real)
	if info, err := os.Stat(folder); err == nil && info.Mode()&fs.ModeSticky == 0 { // else it is everybody's, as /tmp is
		files = append(files, folder)
		if parent := prefix(folder); parent != "" {
			files = append(files, parent)
		}
	}
	return files
}
