package workflow

import (
	"errors"
	"fmt"
	"strings"
)

// Expressions stand between these in a text; a further dollar sign before the
// first makes an ordinary text of it.
const (
	opening = "${{"
	closing = "}}"
)

// piece is a part of a text: literal, or an expression.
type piece struct {
	text       string // without the marks
	expression bool
}

// MaxText bounds a text whose expressions have been replaced, in bytes.
const MaxText = 256 << 10

var errTooLong = fmt.Errorf("has more than %d bytes with its expressions replaced", MaxText)

// split cuts a text into literals and expressions.
func split(text string) ([]piece, error) {
	var pieces []piece
	var literal strings.Builder
	for {
		at := strings.Index(text, opening)
		if at < 0 {
			break
		}
		if at > 0 && text[at-1] == '$' {
			literal.WriteString(text[:at-1])
			literal.WriteString(opening)
			text = text[at+len(opening):]
			continue
		}
		literal.WriteString(text[:at])
		rest := text[at+len(opening):]
		end := endOfExpression(rest)
		if end < 0 {
			return nil, fmt.Errorf("%q is not closed by }}; to write it as it is, double its dollar sign: $${{", clip(text[at:], 40))
		}
		if literal.Len() > 0 {
			pieces = append(pieces, piece{text: literal.String()})
			literal.Reset()
		}
		inner := strings.TrimSpace(rest[:end])
		if inner == "" {
			return nil, errors.New("${{ }} is empty, want an expression such as ${{ jobs.NAME.output }}")
		}
		pieces = append(pieces, piece{text: inner, expression: true})
		text = rest[end+len(closing):]
	}
	if literal.WriteString(text); literal.Len() > 0 {
		pieces = append(pieces, piece{text: literal.String()})
	}
	return pieces, nil
}

// endOfExpression returns where the }} stands that ends an expression: one that
// closes no brace of it and is in no string. -1: there is none.
func endOfExpression(text string) int {
	depth := 0
	for i := 0; i < len(text); {
		if strings.ContainsRune("\"'`", rune(text[i])) {
			i += skipLiteral(text[i:])
			continue
		}
		switch {
		case text[i] == '{':
			depth++
		case text[i] == '}' && depth > 0:
			depth--
		case strings.HasPrefix(text[i:], closing):
			return i
		}
		i++
	}
	return -1
}

// whole returns the expression that a text is: bare, or all of it within the
// marks.
func whole(text string) (string, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, opening) {
		if text == "" {
			return "", errors.New("is empty, want an expression")
		}
		return text, nil
	}
	pieces, err := split(text)
	if err != nil {
		return "", err
	}
	if len(pieces) != 1 || !pieces[0].expression {
		return "", fmt.Errorf("%q is more than one expression, want one such as ${{ jobs.NAME.output }} and nothing beside it", clip(text, 80))
	}
	return pieces[0].text, nil
}

// clip shortens a text for a message.
func clip(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return text
}
