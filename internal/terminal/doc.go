// Package terminal shows jobs on a terminal, and to programs that read its output.
//
// A View shows the updates of a run: redrawn in place (NewLive), as lines of a log
// (NewPlain) or as JSON Lines (NewJSON); Summary is the table at the end. RunTop is
// `scheduler top`: how a whole scheduler stands, live, with keys to act on its jobs.
// A Transcript writes down the conversation with a job's agent; a Talk shows it above
// a line to write in. All of them draw by pure functions of what they were told, the
// time and the size, so that tests can look at every frame.
//
// Clean and Visible make text of workers, files and users harmless: no byte of it acts
// upon the terminal. All other texts of the command line go through them, too.
package terminal
