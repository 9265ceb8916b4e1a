package redact

import (
	"strings"
	"unsafe"
)

// Redactor takes secrets out of text. It does not change, and any number of
// goroutines may use it. A nil Redactor changes nothing.
type Redactor struct {
	values []Value
	known  *literals // nil if no value is known
}

// Value is a text that is known to be secret.
type Value struct {
	Name string // what stands in its place, as [redacted:NAME]
	Text string
}

// MinValue is the fewest bytes of a Value: shorter ones are left out, since they
// would be found in words that have nothing to do with them.
const MinValue = 8

// New returns a Redactor of the values, in which an earlier one's name wins, and
// of the shapes of well-known tokens. Left out are values of less than MinValue
// bytes; of a value of several lines, each line that is long enough is one of its
// own.
func New(values ...Value) *Redactor {
	return &Redactor{values: values, known: newLiterals(values)}
}

// With returns a Redactor that knows further values.
func (r *Redactor) With(values ...Value) *Redactor {
	if r == nil {
		return New(values...)
	}
	return New(append(append([]Value{}, r.values...), values...)...)
}

// String returns the text without its secrets; the text itself if it has none.
func (r *Redactor) String(text string) string {
	if r == nil {
		return text
	}
	if !r.suspects(text) {
		return text
	}
	var b strings.Builder
	same := 0 // bytes of text that are unchanged so far
	key := false
	for line := range strings.Lines(text) {
		var clean string
		body, end := cutEnd(line)
		clean, key = r.line(body, key)
		if b.Len() == 0 && len(clean) == len(body) && clean == body {
			same += len(line)
			continue
		}
		if b.Len() == 0 {
			b.Grow(len(text))
			b.WriteString(text[:same])
			same = 0
		}
		b.WriteString(clean)
		b.WriteString(end)
	}
	if b.Len() == 0 {
		return text
	}
	return b.String()
}

// Bytes is String for bytes: it returns text itself if it has no secrets, else
// bytes of its own.
func (r *Redactor) Bytes(text []byte) []byte {
	if r == nil || len(text) == 0 {
		return text
	}
	return bytesOf(text, r.String(asString(text)))
}

// Lines returns a function that redacts the lines of one text, which it must be
// given in their order and without their ends. What it returns may be the line
// itself; the function may not be called by two goroutines at once.
func (r *Redactor) Lines() func(line []byte) []byte {
	if r == nil {
		return func(line []byte) []byte { return line }
	}
	key := false
	return func(line []byte) []byte {
		var clean string
		clean, key = r.line(asString(line), key)
		return bytesOf(line, clean)
	}
}

// suspects reports whether there is anything to look at in a text. Most have
// nothing, and are told so at the speed of a search.
func (r *Redactor) suspects(text string) bool {
	if _, n := needles.next(text, 0); n != nil {
		return true
	}
	return r.known.in(text)
}

// line redacts one line. key says that it may be of a private key that began on
// an earlier one; the result, that the next one may be.
func (r *Redactor) line(text string, key bool) (clean string, more bool) {
	if key {
		switch {
		case isKeyBody(text):
			return marker(privateKey), true
		case isKeyHeader(text):
			clean, _ = r.line(text, false)
			return clean, true
		}
	}
	for {
		// What is put in makes no new match with its neighbours, but it can end the
		// word that kept a shape from being one. So again, until nothing is found;
		// each turn leaves less that is not a marker.
		next := redactShapes(r.known.replace(text))
		if len(next) == len(text) && next == text {
			return text, endsInKey(text)
		}
		text = next
	}
}

// marker is what stands in a secret's place.
func marker(name string) string { return markerStart + name + "]" }

const markerStart = "[redacted:"

// cutEnd cuts a line's newline off, with the carriage return before it.
func cutEnd(line string) (body, end string) {
	body = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	return body, line[len(body):]
}

// asString returns the bytes as a string, without a copy: it is only read, and
// not after whoever has the bytes may change them.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// bytesOf returns text if clean is the same bytes, else a copy of clean.
func bytesOf(text []byte, clean string) []byte {
	if len(clean) == len(text) && clean == asString(text) {
		return text
	}
	return []byte(clean)
}
