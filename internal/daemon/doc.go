// Package daemon is what a scheduler that runs for months has to do with its
// host: it tells the service manager how it stands, listens on the unix socket of
// its state directory, keeps the parts around the loop running, tells a command or
// a webhook of escalations, and hands its listening sockets over to a new program in
// its own place.
//
// It promises that only its owner may open the socket's file, which is gone when the
// listener is closed; that no connection is refused while one program follows another,
// and that a program that cannot run does not get the place.
package daemon
