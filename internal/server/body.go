package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/agentsched/agentsched/queue"
)

// decode reads the body of a request, one JSON object of at most limit bytes,
// into v. Where maxJobs is not nil, one with a longer list is refused before it is
// decoded, which takes a multiple of its size in memory; 0 is no bound. The error is
// a *problem, an *invalid or queue.ErrTooManyJobs.
func decode(r *http.Request, v any, limit int64, maxJobs func() int) error {
	if err := checkType(r); err != nil {
		return err
	}
	body := http.MaxBytesReader(nil, r.Body, limit)
	if maxJobs != nil && maxJobs() > 0 {
		text, err := io.ReadAll(body)
		if err != nil {
			return badBody(err, limit)
		}
		if err := (queue.Bounds{Submission: maxJobs()}).CheckSubmission(longestList(text)); err != nil {
			return err
		}
		body = io.NopCloser(bytes.NewReader(text))
	}
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return badBody(err, limit)
	}
	switch _, err := dec.Token(); {
	case errors.Is(err, io.EOF):
		// The end of the body, which lifts the bound of its time, may not have been read.
		_, err = io.Copy(io.Discard, r.Body)
		return badBody(err, limit)
	case isTooLarge(err), isTimeout(err):
		return badBody(err, limit)
	}
	return badField("body", "has more than one JSON object")
}

// longestList returns how many values the longest list has that stands directly in
// a JSON object.
func longestList(text []byte) (longest int) {
	depth, commas, inText := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '[' || c == '{':
			if depth++; depth == 2 {
				commas = 0
			}
		case c == ']' || c == '}':
			if depth--; depth == 1 && c == ']' {
				longest = max(longest, commas+1)
			}
		case c == ',' && depth == 2:
			commas++
		}
	}
	return longest
}

// checkType refuses a body that is said to be something else than JSON, as those of
// a browser's forms are.
func checkType(r *http.Request) error { return checkBodyType(r, "application/json") }

func checkBodyType(r *http.Request, want string) error {
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(given); err == nil && kind == want {
		return nil
	}
	return newProblem("unsupported_media_type", http.StatusUnsupportedMediaType, "the body is of type %q, want %s", given, want).
		about("header.Content-Type", "want "+want, given)
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}

// badBody says what is wrong with a body that could not be read; nil if nothing is.
func badBody(err error, limit int64) error {
	if err == nil {
		return nil
	}
	if isTooLarge(err) {
		return newProblem("too_large", http.StatusRequestEntityTooLarge, "the body is too large, want at most %d bytes", limit).
			about("body", fmt.Sprintf("want at most %d bytes", limit), nil)
	}
	if isTimeout(err) {
		return newProblem("too_slow", http.StatusRequestTimeout, "the body has not come within %v", bodyTime)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		location := "body"
		if kind.Field != "" {
			location += "." + kind.Field
		}
		return badField(location, "is a JSON %s, want a %s", kind.Value, jsonKind(kind))
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return badField("body", "unknown field %s", field)
	}
	switch {
	case errors.Is(err, io.EOF):
		return badField("body", "is empty, want a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badField("body", "ends within the JSON object")
	}
	return badField("body", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// jsonKind is what a Go type is in JSON.
func jsonKind(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "whole number that fits"
	case strings.HasPrefix(kind, "float"):
		return "number"
	case kind == "bool":
		return "boolean"
	case kind == "slice":
		return "list"
	case kind == "string":
		return "text"
	}
	return "JSON object"
}
