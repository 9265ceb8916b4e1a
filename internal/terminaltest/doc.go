// Package terminaltest lets tests use a pseudo terminal: what a person would see
// on it, type into it and make of its window.
//
// In go the output of whatever a test starts on the terminal's slave, and keys; out
// come the bytes that came to the screen. It is for Linux.
package terminaltest
