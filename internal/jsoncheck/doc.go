// Package jsoncheck checks JSON values against JSON schemas.
//
// In come a schema and a value as JSON; out goes what is wrong with either. It
// promises that nothing is read but what it is given: a schema that refers to
// another document is refused.
package jsoncheck
