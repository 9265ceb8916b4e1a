// Package jobfile reads job files: YAML in, specifications of jobs out, with
// every default filled in, every path absolute and every time in UTC.
//
// It promises that a job which comes out can be submitted as it is, that
// nothing in a file is ignored, and that a file which is refused is refused
// for all its mistakes at once, each with its position. docs/job-file.md
// describes the fields, docs/job-file.schema.json says the same to editors.
package jobfile
