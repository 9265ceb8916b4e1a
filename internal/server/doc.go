// Package server is the door through which other processes reach a running
// scheduler: JSON over HTTP, described by an OpenAPI document that is made from
// the handlers, and Server-Sent Events.
//
// In come requests, on any number of listeners; out go jobs and all that is known
// of them, and the effects of what an operator asks for. Every route names the
// role that it needs, which Options.Authorize decides upon before anything is
// read; every answer that is not 2xx is a api.Problem. A listener that is slow
// or dead is let go and harms nobody. Package client is the other end, and
// docs/api.md tells what both promise.
package server
