package travel

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// nameFile holds what Call was told; its modification time is the last call.
const nameFile = "called"

var mirrorName = regexp.MustCompile(`^[0-9a-f]{1,64}$`)

// Call gives the mirror a name of hexadecimal digits, at most 64, by which Names lists it. Each call counts as a use.
func (m *Mirror) Call(name string) error {
	if !mirrorName.MatchString(name) {
		return errors.New("the name of a mirror must be 1 to 64 hexadecimal digits")
	}
	temp := filepath.Join(m.dir, nameFile+".next")
	if err := os.WriteFile(temp, []byte(name), 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(temp, m.now(), m.now()); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(m.dir, nameFile))
}

// Names returns the names of the mirrors in a folder, sorted: at most that many, those that were used last. One that cannot be
// read is left out.
func Names(dir string, most int) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []called
	for _, e := range entries {
		if !e.IsDir() || filepath.Ext(e.Name()) != "" {
			continue
		}
		if c, ok := readName(filepath.Join(dir, e.Name(), nameFile)); ok {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b called) int { return b.at.Compare(a.at) })
	var names []string
	for _, c := range all[:min(most, len(all))] {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// called is what Call has noted of a mirror.
type called struct {
	name string
	at   time.Time
}

func readName(path string) (c called, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return c, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return c, false
	}
	text, err := io.ReadAll(io.LimitReader(f, 65))
	c.name, c.at = string(text), info.ModTime()
	return c, err == nil && mirrorName.MatchString(c.name)
}
