package redact

import "strings"

// needle is a text by which a shape is found.
type needle struct {
	text  string
	shape int     // index into shapes
	also  *needle // another one with the same hash
}

// needleSet finds any of the needles, as literals does, with a window of three
// bytes: the fewest that a needle has.
type needleSet struct {
	shift [1 << 16]uint8
	heads [1 << 12]*needle // by the hash of their first three bytes
}

// needles are those of all shapes. They do not change.
var needles = newNeedles()

func newNeedles() *needleSet {
	s := &needleSet{}
	for i := range s.shift {
		s.shift[i] = 2
	}
	for i := len(shapes) - 1; i >= 0; i-- { // so that the first stands first among those of one hash
		for _, text := range shapes[i].needles {
			s.shift[blockAt(text, 0)] = min(s.shift[blockAt(text, 0)], 1)
			s.shift[blockAt(text, 1)] = 0
			head := &s.heads[threeAt(text, 0)]
			*head = &needle{text: text, shape: i, also: *head}
		}
	}
	return s
}

// next returns where the first needle in text begins, at from or later, with all
// that may begin there; nil if there is none.
func (s *needleSet) next(text string, from int) (at int, n *needle) {
	for i := from + 1; i+1 < len(text); {
		if skip := s.shift[blockAt(text, i)]; skip > 0 {
			i += int(skip)
			continue
		}
		for n = s.heads[threeAt(text, i-1)]; n != nil; n = n.also {
			if strings.HasPrefix(text[i-1:], n.text) {
				return i - 1, n
			}
		}
		i++
	}
	return len(text), nil
}

// threeAt is the hash of three bytes.
func threeAt(text string, i int) uint32 {
	three := uint32(text[i]) | uint32(text[i+1])<<8 | uint32(text[i+2])<<16
	return three * 0x9E3779B1 >> 20
}
