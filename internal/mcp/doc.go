// Package mcp serves a scheduler to the agents of people, over the Model Context Protocol: Claude Code,
// Codex or an editor submits jobs, follows them, answers their questions and applies what they made.
//
// The tools know nothing but the scheduler's API, by a client of package client. [Serve] speaks over standard input
// and output with a client that reaches a scheduler as every command does. A [Handler] is the route /mcp: each call of a tool
// is a request to the handler of all routes, with the credentials of the request that brought the call, so that roles,
// rates, the audit log and the bounds of the routes hold as for any other client.
//
// What a run wrote stands in results below from_run, bounded and cleaned, and each such result says that it is
// data and no instructions.
package mcp
