// Package isolation keeps what is out of use: everything, a node, a kind of worker, a
// workspace, or a trigger.
//
// An escalation becomes an isolation in a Book, which the scheduler keeps over restarts
// and every core enforces. A book has one entry a scope, the one that lasts longer. An
// isolation ends with its cool-down or when an operator lifts it.
package isolation
