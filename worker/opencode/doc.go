// Package opencode drives OpenCode, `opencode serve`.
//
// For a worker.Task it prepares private data, state and configuration folders that reuse the user's own login, and the
// command line of a relay, which starts the program's server and speaks HTTP with it (package relay). A session says what
// the server is asked, and reads its answers and events.
//
// What the task grants in the program's own terms is allowed by the last rules of the configuration, so that neither the user's
// nor the repository's configuration can allow more. About everything else the program asks.
package opencode
