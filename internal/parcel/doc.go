// Package parcel keeps folders of submitters that were uploaded to the scheduler, by
// content, for the cores that make workspaces of them.
//
// What is kept of a folder is a parcel's file as package travel writes it: a line that
// describes it, and a git bundle. One that names no other has the whole history; others
// build on one of these. The name is the SHA-256 of the file, so the same folder is kept
// once. Nothing of a bundle is interpreted here: cores do that, confined.
package parcel
