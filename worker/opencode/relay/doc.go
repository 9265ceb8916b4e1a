// Package relay is the process between an adapter and `opencode serve`.
//
// A session says and hears lines; the server speaks HTTP on a port of loopback. The relay starts the server as its
// child, in the run's own process tree and sandbox, and talks with no other. A line to it is a request:
//
//	{"id": 1, "method": "POST", "path": "/session", "body": {…}}
//
// and a line of it an answer, or an event of the server:
//
//	{"id": 1, "status": 200, "body": {…}}
//	{"id": 1, "status": 0, "error": "why there is no answer"}
//	{"event": {"type": "session.idle", …}}
//
// Requests are made one after the other. Those that come before the server listens wait for it. The server's standard
// error, and what it prints that is no event, are the relay's standard error.
//
// The relay ends the server at the end of its standard input, on SIGINT and on SIGTERM, and ends when the server does,
// with its exit code.
//
// It is this program itself, executed once more: see Command. The server's password is made by the relay, for each server,
// and given to it alone.
package relay
