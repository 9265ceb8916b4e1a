// Package realpath resolves the symbolic links of folders for programs that must
// not wait for a file system: a mount that does not answer holds up nobody but who
// asks for a folder on it.
package realpath
