// Package crashlog keeps the reports of agentcores that died: one file a crash in one
// folder, the newest fifty of them. A report is written as a whole or not at all.
package crashlog
