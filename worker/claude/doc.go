// Package claude drives Claude Code, `claude -p --output-format stream-json`.
//
// In comes a worker.Task; out come the program's command line, a private
// CLAUDE_CONFIG_DIR that reuses the user's own login, the meaning of each line
// that the program prints, and what its end amounts to. What the task does not
// grant is denied: tools are left out, commands must match a pattern, and
// neither the user's nor the repository's settings can allow more.
package claude
