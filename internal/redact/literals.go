package redact

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// window is how many bytes decide whether a pattern may begin: the least that
// any pattern has.
const window = MinValue

// literals finds any of many fixed texts, after Wu and Manber, "A fast algorithm
// for multi-pattern searching" (1994), with blocks of two bytes: where the two
// last bytes of a window are in no pattern, it moves on by the whole window.
type literals struct {
	shift [1 << 16]uint8
	// patterns by their first 8 bytes, the longest first.
	patterns map[uint64][]pattern
}

type pattern struct{ text, marker string }

// newLiterals returns what finds the values in each encoding; nil without any.
func newLiterals(values []Value) *literals {
	markers := shapeMarkers()
	for i := range values {
		markers = append(markers, marker(cleanName(values[i].Name)))
	}
	slices.Sort(markers)
	markers = slices.Compact(markers)
	l := &literals{patterns: map[uint64][]pattern{}}
	seen := map[string]bool{}
	for _, v := range values {
		for _, text := range spellings(v.Text) {
			text = apart(text, markers)
			if len(text) < window || seen[text] {
				continue
			}
			seen[text] = true
			head := headOf(text)
			l.patterns[head] = append(l.patterns[head], pattern{text, marker(cleanName(v.Name))})
		}
	}
	if len(seen) == 0 {
		return nil
	}
	for i := range l.shift {
		l.shift[i] = window - 1
	}
	for _, list := range l.patterns {
		slices.SortStableFunc(list, func(a, b pattern) int { return cmp.Compare(len(b.text), len(a.text)) })
		for j := range window - 1 {
			block := blockAt(list[0].text, j)
			l.shift[block] = min(l.shift[block], uint8(window-2-j))
		}
	}
	return l
}

// in reports whether any pattern is in text.
func (l *literals) in(text string) bool {
	_, _, found := l.next(text, 0)
	return found
}

// replace puts its marker in place of each pattern in text: of two that overlap
// the one that begins first, of two that begin together the longer one.
func (l *literals) replace(text string) string {
	start, p, found := l.next(text, 0)
	if !found {
		return text
	}
	var b strings.Builder
	done := 0
	for ; found; start, p, found = l.next(text, done) {
		b.WriteString(text[done:start])
		b.WriteString(p.marker)
		done = start + len(p.text)
	}
	b.WriteString(text[done:])
	return b.String()
}

// next returns the first pattern in text that begins at from or later.
func (l *literals) next(text string, from int) (start int, p pattern, found bool) {
	if l == nil {
		return 0, pattern{}, false
	}
	for last := from + window - 2; last+1 < len(text); { // where the window's last block begins
		if s := l.shift[blockAt(text, last)]; s > 0 {
			last += int(s)
			continue
		}
		start = last + 2 - window
		if p, found = l.at(text[start:]); found {
			return start, p, true
		}
		last++
	}
	return 0, pattern{}, false
}

// at returns the longest pattern that text begins with.
func (l *literals) at(text string) (pattern, bool) {
	for _, p := range l.patterns[headOf(text)] {
		if strings.HasPrefix(text, p.text) {
			return p, true
		}
	}
	return pattern{}, false
}

func headOf(text string) uint64 {
	return binary.LittleEndian.Uint64([]byte(text[:window]))
}

func blockAt(text string, i int) uint16 { return uint16(text[i]) | uint16(text[i+1])<<8 }

// apart returns the part of a pattern that no marker can overlap: what is put in
// must not make up a pattern with what stands beside it. "" if a marker holds
// all of it, or it holds one.
func apart(text string, markers []string) string {
	for again := true; again; {
		again = false
		for _, m := range markers {
			if strings.Contains(m, text) || strings.Contains(text, m) {
				return ""
			}
			for n := min(len(m), len(text)); n > 0; n-- {
				if strings.HasSuffix(m, text[:n]) {
					text, again = text[n:], true
					break
				}
			}
			for n := min(len(m), len(text)); n > 0; n-- {
				if strings.HasPrefix(m, text[len(text)-n:]) {
					text, again = text[:len(text)-n], true
					break
				}
			}
			if text == "" {
				return ""
			}
		}
	}
	return text
}

// cleanName returns a name as it can stand in a marker.
func cleanName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '_'
	}, name)
	return cmp.Or(name, "secret")
}
