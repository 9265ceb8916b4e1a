package ask

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/agentsched/agentsched/internal/commands"
	"github.com/agentsched/agentsched/job"
)

// Pattern returns the narrowest rule that allows a request again: its command, file,
// host or tool and nothing else. dir is the workspace of the run. The error says why
// there is none, and what to write instead: a command line of several commands needs
// several rules, and some can be allowed only once.
func Pattern(r Request, dir string) (job.AskRule, error) {
	rule := job.AskRule{Answer: job.AllowAsked}
	var err error
	switch r.Kind {
	case Command:
		rule.Command, err = commandPattern(r.Command, dir)
	case Write:
		rule.Write, err = pathPattern(r.Path, dir)
	case Read:
		rule.Read, err = pathPattern(r.Path, dir)
	case Host:
		h := parseHost(r.Host)
		if rule.Host = h.name; strings.Contains(h.name, ":") {
			rule.Host = "[" + h.name + "]"
		}
		if h.port != 0 && rule.Host != "" {
			rule.Host += fmt.Sprintf(":%d", h.port)
		}
	case Tool:
		if rule.Tool = r.Tool; strings.Contains(r.Tool, "*") {
			err = fmt.Errorf("the name of the tool %q has a *, which stands for any text in a pattern; it can be allowed once", clip(r.Tool))
		}
	default:
		err = errors.New("there is no rule for what an agent asks in words; answer each question")
	}
	if err != nil {
		return job.AskRule{}, err
	}
	if errs := rule.Validate(); len(errs) > 0 {
		return job.AskRule{}, fmt.Errorf("no pattern stands for this alone (%s); it can be allowed once", errs[0])
	}
	return rule, nil
}

func commandPattern(line, dir string) (string, error) {
	var needed []string
	for _, part := range parts(line, dir) {
		if harmless(&part) {
			continue
		}
		text := clip(part.Text)
		if why := cannotMatch(&part); why != "" {
			return "", fmt.Errorf("%q %s, which no pattern allows; it can be allowed once", text, why)
		}
		if part.Kind == commands.Write {
			return "", fmt.Errorf("%q writes a file, which takes rules for the command and for the file; it can be allowed once", text)
		}
		pattern, err := wordsPattern(part.Words)
		if err != nil {
			return "", fmt.Errorf("%q %w; it can be allowed once, or by a wider pattern", text, err)
		}
		if !slices.Contains(needed, pattern) {
			needed = append(needed, pattern)
		}
	}
	switch len(needed) {
	case 0:
		return "", errors.New("it runs nothing that needs a rule")
	case 1:
		return needed[0], nil
	}
	list, _ := job.Cut(fmt.Sprintf("%q", needed), maxText)
	return "", fmt.Errorf("it runs %d commands, and each needs a rule of its own; choose of %s", len(needed), list)
}

// wordsPattern returns the pattern that these words alone match.
func wordsPattern(words []commands.Word) (string, error) {
	texts := make([]string, len(words))
	for i, w := range words {
		switch {
		case w.Dynamic:
			return "", errors.New("has an argument that is only known when it runs")
		case w.Text == "" || strings.Contains(w.Text, "*") || strings.ContainsFunc(w.Text, unicode.IsSpace):
			return "", fmt.Errorf("has the argument %q, which no pattern stands for alone", clip(w.Text))
		}
		texts[i] = w.Text
	}
	return strings.Join(texts, " "), nil
}

func pathPattern(name, dir string) (string, error) {
	full := resolve(dir, name)
	if full == "" || full == "/" || full == dir {
		return "", fmt.Errorf("%q is not the path of one file; it can be allowed once", clip(name))
	}
	if within(dir, full) {
		full = strings.TrimPrefix(full[len(strings.TrimSuffix(dir, "/")):], "/")
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path.Clean(full)), nil
}
