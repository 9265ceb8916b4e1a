// Package client is how other programs reach a running scheduler: the command
// line uses it, and yours may.
//
// In go requests, by the socket of a state directory or over TCP with a token;
// out come answers as Go values, or an error that is ErrNotRunning or a
// *api.Problem. The shapes of bodies and answers are the types of package api;
// docs/api.md tells the routes.
package client
