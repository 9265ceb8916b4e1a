// Package credential has what model providers are paid with: keys by value, file or command, and the tokens of subscriptions that
// a person has logged in to with a vendor's own program.
//
// The file of a login stays the person's: it is read anew each time, refreshed once however many want it, under a lock, and
// replaced at once and whole, with all that is not known here left in it.
package credential
