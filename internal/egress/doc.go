// Package egress is a run's way out: an HTTP proxy that lets through what the job's
// rules name and nothing else.
//
// In come CONNECT and absolute-form HTTP requests of a run; out goes a connection to
// an address that was checked, or a refusal that says what to write to allow it. Every
// connection, refused ones too, is told as a Record.
//
// A name that the rules do not allow is never resolved, so that no data leaves in
// lookups. What an allowed name resolves to is checked as well: loopback, private and
// metadata addresses are refused unless the rules name them, and the address that was
// checked is the one that is dialled.
//
// A TLS client that names another host than its CONNECT (domain fronting) is refused
// unless the rules allow that host, too. What lies inside a tunnel otherwise is not
// seen: the Host of a request, and the inner name of an Encrypted ClientHello, whose
// outer name is checked like any other. An allowed host that serves strangers' data
// (storage, repositories) can carry data out. Public addresses of this machine itself
// count as public.
package egress
