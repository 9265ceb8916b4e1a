// Package access says who may reach a running scheduler and what they may do.
//
// In come connections and requests, by one of three doors: the unix socket, whose
// peers the kernel names; TCP, where a bearer token does; a browser, by the session
// that a one-time link began. Out goes each request with its Principal, or a
// refusal (RFC 9457) that is also told to whoever keeps the audit log.
//
// It promises that nothing listens beyond loopback without TLS and a token, that
// no page of another site can make a browser act here, that what is revoked ends
// within seconds, running streams included, and that no secret is kept, only its
// hash.
package access
