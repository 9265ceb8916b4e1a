package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxNesting is how deep the values of a request may be nested.
const maxNesting = 256

var errJSON = errors.New("the body is not JSON")

// scanner goes over a JSON text once, strictly by RFC 8259, and copies nothing. It is used in place of encoding/json, which
// takes the last of several members of one name, whatever its case, and where providers may take another.
type scanner struct {
	text  []byte
	pos   int
	depth int
}

// member is a member of an object: its name without escapes, and where it stands in the text.
type member struct {
	name       string
	start, end int // from the name's quote to the end of the value
	value      []byte
}

// maxMembers bounds the members of a request and of a tool.
const maxMembers = 128

// members returns the members of the one object that text is. look says with what the value of a
// member is looked through; nil: with nothing. Two of one name, in whatever case, are an error.
func members(text []byte, look func(name string) *content) ([]member, error) {
	s := &scanner{text: text}
	var found []member
	s.space()
	if s.peek() != '{' {
		return nil, fmt.Errorf("%w object", errJSON)
	}
	err := s.each(func(name []byte, start int) error {
		m := member{name: string(name), start: start}
		for _, o := range found {
			if bytes.EqualFold([]byte(o.name), name) {
				return fmt.Errorf("the member %.40q stands twice: leave one out", m.name)
			}
		}
		if len(found) == maxMembers {
			return fmt.Errorf("there are more than %d members", maxMembers)
		}
		var c *content
		if look != nil {
			c = look(m.name)
		}
		from := s.pos
		if err := s.value(c); err != nil {
			return err
		}
		m.value, m.end = text[from:s.pos], s.pos
		found = append(found, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.space(); s.pos != len(text) {
		return nil, s.fail("nothing behind the object")
	}
	return found, nil
}

// elements returns the values of the array that text is; nil if it is none.
func elements(text []byte, most int) ([][]byte, error) {
	s := &scanner{text: text}
	if s.space(); s.peek() != '[' {
		return nil, nil
	}
	var found [][]byte
	err := s.items(func() error {
		from := s.pos
		if len(found) == most {
			return fmt.Errorf("there are more than %d elements", most)
		}
		err := s.value(nil)
		found = append(found, text[from:s.pos])
		return err
	})
	return found, err
}

// value goes over one value. With c, the objects in it are looked at.
func (s *scanner) value(c *content) error {
	switch b := s.peek(); b {
	case '{':
		if c != nil {
			return c.object(s)
		}
		return s.each(func([]byte, int) error { return s.value(nil) })
	case '[':
		return s.items(func() error { return s.value(c) })
	case '"':
		_, err := s.str()
		return err
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

// each goes over an object. f is called where a value begins and goes over that.
func (s *scanner) each(f func(name []byte, start int) error) error {
	return s.nest('}', func() error {
		start := s.pos
		if s.peek() != '"' {
			return s.fail("the name of a member")
		}
		name, err := s.str()
		if err != nil {
			return err
		}
		if s.space(); s.peek() != ':' {
			return s.fail(`":"`)
		}
		s.pos++
		s.space()
		return f(unquote(name), start)
	})
}

func (s *scanner) items(f func() error) error { return s.nest(']', f) }

// nest goes over what stands between brackets, apart by commas.
func (s *scanner) nest(end byte, f func() error) error {
	if s.depth++; s.depth > maxNesting {
		return fmt.Errorf("the values are nested more than %d deep", maxNesting)
	}
	s.pos++
	if s.space(); s.peek() == end {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case end:
			s.pos++
			s.depth--
			return nil
		default:
			return s.fail(`"," or the end`)
		}
	}
}

// str goes over a string and returns what stands between the quotes.
func (s *scanner) str() ([]byte, error) {
	text, start := s.text, s.pos+1
	for i := start; i < len(text); i++ {
		switch b := text[i]; {
		case b == '"':
			s.pos = i + 1
			return text[start:i], nil
		case b == '\\':
			n := escape(text[i+1:])
			if n == 0 {
				s.pos = i
				return nil, s.fail("an escape of JSON")
			}
			i += n
		case b < ' ':
			s.pos = i
			return nil, s.fail("an escaped control character")
		}
	}
	s.pos = len(text)
	return nil, s.fail("the end of a string")
}

// escape returns how many bytes follow the backslash in an escape, 0 if it is none.
func escape(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] {
	case 'n', '"', '\\', 't', 'r', '/', 'b', 'f':
		return 1
	case 'u':
		if len(text) < 5 {
			return 0
		}
		for _, b := range text[1:5] {
			if (b < '0' || b > '9') && (b|0x20 < 'a' || b|0x20 > 'f') {
				return 0
			}
		}
		return 5
	}
	return 0
}

// unquote returns what a string that was gone over says. Only one with escapes is copied.
func unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var text string
	if json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &text) != nil {
		return raw // cannot be: str has seen it
	}
	return []byte(text)
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.text[s.pos:], []byte(w)) {
		return s.fail(w)
	}
	s.pos += len(w)
	return nil
}

// number goes over -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?.
func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if first, n := s.peek(), s.digits(); n == 0 || first == '0' && n > 1 {
		return s.fail("a value")
	}
	if s.peek() == '.' {
		s.pos++
		if s.digits() == 0 {
			return s.fail("a digit")
		}
	}
	if b := s.peek(); b == 'e' || b == 'E' {
		s.pos++
		if b := s.peek(); b == '+' || b == '-' {
			s.pos++
		}
		if s.digits() == 0 {
			return s.fail("a digit")
		}
	}
	return nil
}

func (s *scanner) digits() int {
	from := s.pos
	for b := s.peek(); b >= '0' && b <= '9'; b = s.peek() {
		s.pos++
	}
	return s.pos - from
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) fail(want string) error {
	return fmt.Errorf("%w: want %s at byte %d", errJSON, want, s.pos)
}
