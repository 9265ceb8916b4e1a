// Package travel brings a workspace from the host where it is to one where a job
// runs.
//
// Pack makes a commit of what the submitter's folder holds, on top of the one that is
// checked out there, and a git bundle of it that leaves out what the receiver
// says that it has. Neither the index of the repository nor its refs, its stash or its files
// are touched. What travels is a Parcel, which describes the bundle, and the bundle.
//
// A receiver keeps Mirrors: one bare repository for each repository and owner, which
// takes bundles, or is fetched from the repository's address. A workspace is a worktree of the
// mirror as it would be of a folder's repository (workspace.Origin), at the commit with
// what was not committed, so the patch of a job fits the submitter's folder. Hold has the
// mirror keep what it needs. Checkout makes a folder that is like the submitter's in
// all: its HEAD is the commit that was checked out there, and what was not committed is
// in the files.
//
// A bundle, its description and what a repository's address answers are taken for
// hostile. Objects are checked one by one, in a folder of their own, before they are
// a part of the mirror; of a bundle only the one commit gets there that its description
// names. Mirrors of different owners share nothing: who works in a checkout
// can read all of its mirror. Every git command runs as those of package workspace do,
// and those of a mirror without any configuration but their own.
package travel
