package commands

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Word is a word of a command as far as it is known before the script runs.
type Word struct {
	// Text is the value after quotes were removed; of a dynamic word, the part
	// before the first expansion.
	Text string
	// Dynamic words are expanded when the script runs, to anything and maybe
	// to several words or none: $x, $(…), *.go, {a,b}, ~.
	Dynamic bool
}

func (w Word) is(text string) bool { return !w.Dynamic && w.Text == text }

// readWord removes the quotes of w as a shell would.
func readWord(w *syntax.Word) Word {
	var text strings.Builder
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if expands(p.Value, i == 0) && !(len(w.Parts) == 1 && (p.Value == "[" || p.Value == "[[")) {
				return Word{text.String(), true}
			}
			text.WriteString(unescape(p.Value, ""))
		case *syntax.SglQuoted:
			if p.Dollar { // $'…' has escapes of its own, and dash knows none of it
				return Word{text.String(), true}
			}
			text.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok || p.Dollar {
					return Word{text.String(), true}
				}
				text.WriteString(unescape(lit.Value, "$`\"\\\n"))
			}
		default:
			return Word{text.String(), true}
		}
	}
	return Word{text.String(), false}
}

// expands reports whether unquoted text is subject to the expansion of file
// names, braces or, at the start of a word, a tilde.
func expands(text string, first bool) bool {
	if first && strings.HasPrefix(text, "~") {
		return true
	}
	var brace, list bool
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return true
		case '{':
			brace = true
		case ',':
			list = true
		case '.':
			list = list || strings.HasPrefix(text[i:], "..")
		}
	}
	return brace && list
}

// unescape removes backslashes: each one if special is empty (unquoted text),
// else those before a byte of special (text in double quotes).
func unescape(text, special string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (special == "" || strings.IndexByte(special, text[i+1]) >= 0) {
			i++
			if text[i] == '\n' {
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
