// Package gitproxy lets a run fetch from and push to git repositories without a
// credential inside the run.
//
// Proxy is an HTTP handler at the run's endpoint. Git inside the run is
// configured (GitConfig) to ask there for https://HOST/PATH, over plain HTTP on
// loopback and with the run's own key. The proxy adds the credential and passes
// the request on over HTTPS. Whether a run may read or write is decided for each
// repository, by the service that git asks for.
//
// Only the smart protocol passes: GET info/refs of a service, POST
// git-upload-pack and POST git-receive-pack (gitprotocol-http(5)). Everything
// else is refused: the dumb protocol, Git LFS, other methods and queries. Of a
// request's and a response's headers only those pass that the protocol needs.
//
// A redirect is never followed. One of info/refs is handed to git with the
// address at the proxy instead, so that the new place is checked and gets a
// credential like any other. Texts of errors are redacted, and in what else a
// host sends the credential is replaced by asterisks. A host that encodes it in a
// way of its own, or splits it between two packets, can still give it to the run:
// allow only hosts that are trusted with the credential.
//
// The proxy does not choose addresses: which names resolve to where is the
// Transport's concern.
package gitproxy
