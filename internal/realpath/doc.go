// Package realpath resolves the symbolic links of folders without waiting for a file
// system: a mount that does not answer delays only requests for folders on it.
package realpath
