// Package ask decides whether the program of a run may do what it asks for: by the
// rules of its job, by what the job was granted, by what people have allowed before, or
// else by asking a person.
//
// It is pure: it looks at texts, follows no symbolic link and resolves no name. What is
// allowed is what can be read from the request alone. What is denied is denied where it
// is written plainly: a program that runs others can do the same unseen, and only the
// run's sandbox keeps it from that.
package ask
