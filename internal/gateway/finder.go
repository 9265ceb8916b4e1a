package gateway

import "bytes"

// finder goes over JSON as it comes, in pieces of any size, and finds the few things that metering needs: the object "usage"
// at the top or in "response" or "message", and how many bytes of text the members "delta" hold. What it holds does not grow with
// the JSON. JSON that is none gives nothing.
type finder struct {
	// found is called with a usage object. started says that it stood in "message", where it is that of an answer that has
	// only begun.
	found func(raw []byte, started bool)
	text  int64 // bytes of text in deltas

	depth  int
	stack  [tracked]level
	name   [maxName]byte // of the member under way
	length int           // of name; above maxName: too long to be one of ours
	key    keyword       // what name is, once it has ended

	inString, escaped bool
	isName, wantName  bool // this string is a name, the next one is
	counted           bool // this string is a text in a delta

	delta   int // depth of the delta that is open, 0: none
	usage   int // depth of the usage that is open, 0: none
	started bool
	raw     []byte // the usage
}

const (
	tracked  = 8    // what is nested deeper is not looked at
	maxName  = 8    // bytes of the longest name that is looked for
	maxUsage = 4096 // bytes of a usage; a longer one is none
)

type level struct {
	object bool
	key    keyword // the member that it is the value of
}

type keyword byte

const (
	other keyword = iota
	keyUsage
	keyResponse
	keyMessage
	keyDelta
)

// reset begins a new JSON text.
func (f *finder) reset() {
	f.depth, f.length, f.key = 0, 0, other
	f.inString, f.escaped, f.isName, f.wantName, f.counted = false, false, false, false, false
	f.delta, f.usage = 0, 0
}

func (f *finder) feed(p []byte) {
	for i := 0; i < len(p); {
		if f.inString {
			i += f.string(p[i:])
			continue
		}
		c := p[i]
		i++
		if f.usage > 0 {
			f.keep(p[i-1 : i])
		}
		switch c {
		case '"':
			f.inString, f.isName = true, f.wantName
			if f.isName {
				f.length, f.wantName = 0, false
			}
			f.counted = !f.isName && (f.delta > 0 || f.under() == keyDelta)
		case '{', '[':
			f.open(c == '{')
		case '}', ']':
			f.close()
		case ',':
			f.wantName = f.depth > 0 && f.depth <= tracked && f.stack[f.depth-1].object
		}
	}
}

// string goes over a string up to its end, and returns how many bytes that is.
func (f *finder) string(p []byte) int {
	i := 0
	if f.escaped {
		f.escaped, i = false, 1
	}
	ended := false
	for q := -1; !ended && i < len(p); {
		if q < i { // the next quote, escaped or not; looked for once
			if q = bytes.IndexByte(p[i:], '"') + i; q < i {
				q = len(p)
			}
		}
		esc := bytes.IndexByte(p[i:q], '\\')
		switch {
		case esc >= 0:
			i += esc + 2
			f.escaped = i > len(p)
		case q < len(p):
			i, ended = q+1, true
		default:
			i = q
		}
	}
	i = min(i, len(p))
	inside := i
	if ended {
		inside--
	}
	if f.counted {
		f.text += int64(inside)
	}
	if f.isName {
		if f.length+inside <= maxName {
			copy(f.name[f.length:], p[:inside])
		}
		f.length = min(f.length+inside, maxName+1)
	}
	if f.usage > 0 {
		f.keep(p[:i])
	}
	if ended {
		f.inString = false
		if f.isName {
			f.key = f.keyword()
		}
	}
	return i
}

func (f *finder) keyword() keyword {
	if f.length > maxName {
		return other
	}
	switch string(f.name[:f.length]) {
	case "usage":
		return keyUsage
	case "response":
		return keyResponse
	case "message":
		return keyMessage
	case "delta":
		return keyDelta
	}
	return other
}

// under returns the name of the member whose value comes now.
func (f *finder) under() keyword {
	if f.depth == 0 || f.depth > tracked || !f.stack[f.depth-1].object {
		return other
	}
	return f.key
}

func (f *finder) open(object bool) {
	under := f.under()
	if f.depth++; f.depth <= tracked {
		f.stack[f.depth-1] = level{object, under}
	}
	f.wantName = object
	switch {
	case under == keyDelta && f.delta == 0:
		f.delta = f.depth
	case under == keyUsage && object && f.usage == 0:
		parent := f.stack[f.depth-2].key
		if f.depth == 2 || f.depth == 3 && (parent == keyResponse || parent == keyMessage) {
			f.usage, f.started = f.depth, f.depth == 3 && parent == keyMessage
			f.raw = append(f.raw[:0], '{')
		}
	}
}

func (f *finder) close() {
	f.wantName = false
	if f.depth == 0 {
		return
	}
	if f.usage == f.depth {
		f.usage = 0
		if len(f.raw) <= maxUsage {
			f.found(f.raw, f.started)
		}
	}
	if f.delta == f.depth {
		f.delta = 0
	}
	f.depth--
}

// keep notes a piece of the usage, one byte too many at most.
func (f *finder) keep(p []byte) {
	f.raw = append(f.raw, p[:min(len(p), maxUsage+1-len(f.raw))]...)
}
