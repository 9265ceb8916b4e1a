// Package api holds the shapes of all that leaves the process: bodies and answers
// of the HTTP API, the events of its streams, errors, and records of the audit log. They are plain values
// in JSON, with no behaviour of the scheduler behind them, and depend on package
// job alone, so that other programs can name each of them.
//
// The comment of a type or field is its description in the OpenAPI document, so it
// speaks of JSON: a field that is "absent" has its zero value in Go. Times are RFC
// 3339 in UTC, lengths of time are written as Go writes them ("1h30m0s"), money is
// in US dollars. Fields are added and never change their meaning.
//
// Package client asks for them, docs/api.md tells the routes.
package api
