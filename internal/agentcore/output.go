package agentcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// outputURL names a job's output schema to the compiler; nothing is loaded from it.
const outputURL = "job:///output"

// maxMistakes bounds how many mistakes of an answer are told.
const maxMistakes = 10

// checkOutput returns why the answer does not satisfy the schema; nil without one.
// The error is for the agent too, which is to do better.
func checkOutput(schema json.RawMessage, answer string) error {
	if len(schema) == 0 {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(outputURL, doc); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	compiled, err := compiler.Compile(outputURL)
	if err != nil {
		return fmt.Errorf("compile the schema: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(bareJSON(answer)))
	if err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	err = compiled.Validate(value)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	var mistakes []string
	collect(invalid, &mistakes)
	if more := len(mistakes) - maxMistakes; more > 0 {
		mistakes = append(mistakes[:maxMistakes], fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(mistakes, "; "))
}

// collect adds what is wrong at the ends of an error's branches, e.g. "at
// /events/0/type: value must be one of 'num'".
func collect(e *jsonschema.ValidationError, mistakes *[]string) {
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			collect(c, mistakes)
		}
		return
	}
	what := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	if len(e.InstanceLocation) == 0 {
		*mistakes = append(*mistakes, what)
		return
	}
	*mistakes = append(*mistakes, fmt.Sprintf("at /%s: %s", strings.Join(e.InstanceLocation, "/"), what))
}

// bareJSON strips the Markdown fence that models like to put around JSON.
func bareJSON(answer string) string {
	text := strings.TrimSpace(answer)
	body, fenced := strings.CutPrefix(text, "```")
	if !fenced {
		return text
	}
	_, body, _ = strings.Cut(body, "\n")
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(body), "```"))
}
