package commands

import "strings"

// Pattern is one entry of allow_commands, split into words. In a word, * stands
// for any text (but not for a slash in the first word, the program's name); as
// the last word it stands for any further words, none included. So "go test *"
// allows `go test` and `go test -v ./...`, and "./scripts/*" allows
// `./scripts/lint` without arguments.
type Pattern []string

// Patterns returns those that texts are. A text that is blank is none.
func Patterns(texts ...string) []Pattern {
	var patterns []Pattern
	for _, t := range texts {
		if words := strings.Fields(t); len(words) > 0 {
			patterns = append(patterns, words)
		}
	}
	return patterns
}

// Everything reports whether p is "*": any command whatever.
func (p Pattern) Everything() bool { return len(p) == 1 && p[0] == "*" }

// Matches reports whether p allows a command of these words. What a dynamic
// word will be is not known, so only a last * allows it.
func (p Pattern) Matches(words []Word) bool {
	fixed, rest := p.fixed()
	if len(words) < len(fixed) || len(words) > len(fixed) && !rest {
		return false
	}
	for i, want := range fixed {
		if words[i].Dynamic || !matchWord(i, want, words[i].Text) {
			return false
		}
	}
	return true
}

// MayMatch reports whether a command of these words may be one that p means, whatever
// its dynamic arguments turn out to be and wherever its program lies. It is how a pattern
// of what is forbidden is compared.
func (p Pattern) MayMatch(words []Word) bool {
	fixed, rest := p.fixed()
	for i, want := range fixed {
		switch {
		case i == len(words):
			return false
		case words[i].Dynamic:
			return i > 0
		case i == 0 && !strings.Contains(want, "/"):
			if !Glob(want, words[i].Text[strings.LastIndexByte(words[i].Text, '/')+1:]) {
				return false
			}
		case !matchWord(i, want, words[i].Text):
			return false
		}
	}
	return rest || len(words) == len(fixed) || len(fixed) < len(words) && words[len(fixed)].Dynamic
}

// fixed returns the words of p that have one of the command each, and whether further
// ones may follow.
func (p Pattern) fixed() (words []string, rest bool) {
	if last := len(p) - 1; p[last] == "*" {
		return p[:last], true
	}
	return p, false
}

func matchWord(i int, pattern, text string) bool {
	if i == 0 {
		return globName(pattern, text)
	}
	return Glob(pattern, text)
}

// Glob matches text against a pattern in which * is any run of bytes, in time
// proportional to the product of their lengths.
func Glob(pattern, text string) bool {
	p, t := 0, 0
	star, resume := -1, 0 // the last * seen, and where what follows it was tried
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			resume++
			p, t = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// globName is glob for the name of a program, where * does not match a slash.
func globName(pattern, name string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(name, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if !Glob(want[i], have[i]) {
			return false
		}
	}
	return true
}
