package workflow

import "strings"

// The language of expressions does not know names such as fix-login, 2nd or
// v1.2, which jobs may have. So in `jobs.NAME` the name is written, before it is
// parsed, in letters that no name has, one for one, so that positions stay right;
// they are read back from the syntax tree and from errors.
const (
	hyphenLetter = 'ꟷ' // U+A7F7, a letter that looks like a hyphen
	dotLetter    = 'ꞏ' // U+A78F, a letter that looks like a dot
	zeroLetter   = '０' // U+FF10, and the nine digits behind it
)

// encodeNames rewrites the names of jobs in an expression. known tells which
// names there are: `jobs.a.b` means the longest one that fits.
func encodeNames(text string, known func(string) bool) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if n := skipLiteral(text[i:]); n > 0 {
			b.WriteString(text[i : i+n])
			i += n
			continue
		}
		word := wordAt(text[i:])
		if word == "" {
			b.WriteByte(text[i])
			i++
			continue
		}
		b.WriteString(word)
		before := text[:i]
		i += len(word)
		if word != "jobs" || strings.HasSuffix(before, ".") {
			continue
		}
		dot := len(text[i:]) - len(strings.TrimPrefix(strings.TrimPrefix(text[i:], "?"), "."))
		if dot == 0 || text[i+dot-1] != '.' {
			continue
		}
		b.WriteString(text[i : i+dot])
		i += dot
		name := nameAt(text[i:], known)
		b.WriteString(encodeName(name))
		i += len(name)
	}
	return b.String()
}

// skipLiteral returns the length of the string or comment at the start of text.
func skipLiteral(text string) int {
	switch {
	case strings.HasPrefix(text, "//"):
		return lineLength(text)
	case strings.HasPrefix(text, "/*"):
		if end := strings.Index(text[2:], "*/"); end >= 0 {
			return 2 + end + 2
		}
		return len(text)
	case text[0] != '"' && text[0] != '\'' && text[0] != '`':
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == text[0]:
			return i + 1
		case text[i] == '\\' && text[0] != '`':
			i++
		}
	}
	return len(text)
}

func lineLength(text string) int {
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		return end
	}
	return len(text)
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

func wordAt(text string) string {
	n := 0
	for n < len(text) && isWord(text[n]) {
		n++
	}
	return text[:n]
}

// nameAt returns the name of a job at the start of text: the longest known one,
// or what stands before the next dot.
func nameAt(text string, known func(string) bool) string {
	run := 0
	for run < len(text) && text[run] < 0x80 && text[run] != '$' && (isWord(text[run]) || text[run] == '-' || text[run] == '.') {
		run++
	}
	first := ""
	for end := run; end > 0; end-- {
		if end < run && text[end] != '.' {
			continue
		}
		if first = text[:end]; known(first) {
			return first
		}
	}
	return first
}

func encodeName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '-':
			return hyphenLetter
		case r == '.':
			return dotLetter
		case r >= '0' && r <= '9':
			return zeroLetter + r - '0'
		}
		return r
	}, name)
}

// decodeNames undoes encodeName anywhere in a text.
func decodeNames(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == hyphenLetter:
			return '-'
		case r == dotLetter:
			return '.'
		case r >= zeroLetter && r <= zeroLetter+9:
			return '0' + r - zeroLetter
		}
		return r
	}, text)
}
