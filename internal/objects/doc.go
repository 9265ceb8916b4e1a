// Package objects keeps content under keys in a bucket of an S3 service.
//
// A bucket is not trusted: whoever owns it can change, cut and replace what lies there.
// Callers bound what they read and compare it with what they know of it. What is sent goes
// to the configured endpoint alone: redirects are not followed, and no metadata service is
// asked for keys.
package objects
