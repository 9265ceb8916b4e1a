// Package claude drives Claude Code, `claude -p --output-format stream-json`.
//
// For a worker.Task it prepares a private CLAUDE_CONFIG_DIR that reuses the user's own login, and the
// program's command line. It classifies each line that the program prints, and the
// program's end.
//
// What the task does not grant is denied: tools are left out, commands must match a
// pattern, and neither the user's nor the repository's settings can allow more.
package claude
