// Package server serves a running scheduler to other processes: JSON over HTTP,
// described by an OpenAPI document, and Server-Sent Events.
//
// New makes the values that answer, one for each subject (jobs, runs, overview, …), and
// each registers its routes with the router. A route names the role that it needs,
// which Options.Authorize decides about before the request is read. The types of a
// handler's input and answer describe it in the document; huma makes their schemas. Each
// answer that is not 2xx is an api.Problem. A stream whose client is slow or gone is
// ended. Package client is the other end; docs/api.md says what both promise.
//
// It also serves the dashboard: HTML, CSS and JavaScript modules under assets. Its
// answers have a Content-Security-Policy that lets nothing run, load or connect but from
// the same origin, and forbids what turns text into markup or code.
package server
