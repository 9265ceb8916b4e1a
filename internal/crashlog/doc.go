// Package crashlog keeps the reports of the agentcores that died: one file a
// crash in one folder, the newest fifty of them.
//
// In comes a Report; out come all of them, the newest first, or the one that a
// user means. A report is there with its whole content or not at all.
package crashlog
