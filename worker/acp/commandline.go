package acp

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/agentsched/agentsched/worker/agentcli"
)

// commandLine returns the command in the arguments of a call, as a shell would get it: of
// `bash -lc 'go test'` that is go test, be it a text or a list of words. "" if there is none.
func commandLine(raw json.RawMessage) string {
	var args struct{ Command json.RawMessage }
	agentcli.Decode(raw, &args)
	var text string
	if json.Unmarshal(args.Command, &text) == nil {
		if words := plainWords(text); words != nil {
			return unwrap(words, text)
		}
		return text
	}
	var words []string
	if json.Unmarshal(args.Command, &words) != nil {
		return ""
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		q, err := syntax.Quote(w, syntax.LangBash)
		if err != nil {
			return "" // a byte that no shell can be given
		}
		quoted[i] = q
	}
	return unwrap(words, strings.Join(quoted, " "))
}

// unwrap returns the script of words that have a shell run one, else line.
func unwrap(words []string, line string) string {
	shells, flags := []string{"sh", "bash", "zsh", "dash"}, []string{"-c", "-lc"}
	if len(words) == 3 && slices.Contains(shells, filepath.Base(words[0])) && slices.Contains(flags, words[1]) {
		return words[2]
	}
	return line
}

// plainWords returns the words of a line that is one command, of which nothing is
// expanded; else nil.
func plainWords(line string) []string {
	if len(line) > maxInput {
		return nil
	}
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil || len(f.Stmts) != 1 {
		return nil
	}
	stmt := f.Stmts[0]
	c, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(stmt.Redirs) > 0 || stmt.Negated || stmt.Background || stmt.Coprocess || len(c.Assigns) > 0 {
		return nil
	}
	var words []string
	for _, w := range c.Args {
		var b strings.Builder
		for _, part := range w.Parts {
			switch p := part.(type) {
			case *syntax.SglQuoted:
				if p.Dollar {
					return nil
				}
				b.WriteString(p.Value)
			case *syntax.Lit:
				if strings.ContainsAny(p.Value, `\*?[~{`) {
					return nil
				}
				b.WriteString(p.Value)
			default:
				return nil
			}
		}
		words = append(words, b.String())
	}
	return words
}
