// Package jobfile reads job files: YAML in, specifications of jobs and what they
// have in common (agents, teams, pipelines) out, with every default filled in,
// every path absolute and every time in UTC.
//
// It promises that jobs which come out can be submitted as they are, that
// nothing in a file is ignored, and that files which are refused are refused
// for all their mistakes at once, each with its position: first those within
// one job, then those between jobs, which packages workflow and
// workflow/pipeline find. docs/job-file.md describes the fields,
// docs/job-file.schema.json says the same to editors.
package jobfile
