// Package ca is a small certificate authority: it makes certificates by which clients, nodes and
// browsers know a scheduler (api.tls of the configuration).
//
// An authority is a folder with its certificate and key (ca.crt, ca.key) and those that it has
// issued (NAME.crt, NAME.key), PEM files that their owner alone reads. ca.crt is no secret: it is
// what --ca of clients and nodes takes. Whoever has ca.key can pose as any scheduler.
package ca
