// Package socket opens and reaches the unix socket of a state directory.
//
// In goes the socket's path, however long; out come a listener whose file only
// its owner may open and which is gone when it is closed, and connections. A
// socket that was listened on before can be taken over, and handed on.
package socket
