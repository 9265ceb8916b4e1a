package jobfile

import "github.com/agentsched/agentsched/job"

// file, entry and what they hold are the fields of a job file. Where a file
// writes what a specification holds, the field is of a type of package job.
// Pointers tell what the file leaves out from what it sets to nothing.
type file struct {
	// The project or client in whose name the jobs run: 1 to 64 of `a-z A-Z 0-9` and, not first, `- _
	// .`.
	Tenant job.Tenant `yaml:"tenant,omitempty" otherwise:"default"`
	// The jobs, at least one.
	Jobs []entry `yaml:"jobs" need:"a list of jobs" items:"1"`
	// Profiles that jobs take: [Agents](#agents).
	Agents []agent `yaml:"agents"`
	// A file with more of them, for several job files.
	AgentsFile string `yaml:"agents_file,omitempty"`
	// Who is restarted with whom: [Teams](#teams).
	Teams []job.Team `yaml:"teams"`
	// Jobs through which events stream: [Pipelines](#pipelines).
	Pipelines []job.Pipeline `yaml:"pipelines"`
}

type entry struct {
	// The job's name, also of its git branch: 1 to 64 of `a-z A-Z 0-9` and, not first, `- _ .`.
	ID job.Name `yaml:"id" need:"a name for the job such as fix-login"`
	// `WORKER_TASK`: an agent works in a workspace. `TOOL`: a shell command. `LLM`: a model answers,
	// without tools and files. `PLUGIN_EVENT`: a shell command, your plugin, handles an event
	// (`payload`). `MAINTENANCE`: a shell command looks after a folder, which it has for itself
	// ([below](#plugin-events-and-maintenance)).
	Type jobType `yaml:"type,omitempty" otherwise:"WORKER_TASK"`
	// What to do; for the shell worker, the commands. At most 256 KiB. `instructions.file` is a text
	// file in UTF-8, from the job file's folder. A [`merge`](#with-others) has its own.
	Instructions instructions `yaml:"instructions" type:"text, or {file: path}" otherwise:"required"`
	// What the job is given: any values, whose texts may hold expressions. With an [agent](#agents)
	// that has an input schema, it must satisfy that. In the first stage of a [pipeline](#pipelines)
	// it is the seed: a list is an event for each item.
	Input input `yaml:"input" type:"mapping, list, or expression"`
	// With `PLUGIN_EVENT`: the event. It is passed on as it is, expressions are not looked for in it.
	Payload payload `yaml:"payload" type:"any value"`
	// What the agent is told about itself, beside its own system prompt.
	SystemPrompt string `yaml:"system_prompt"`
	// What the answer must be. A schema must be whole: references to other documents are refused. Its
	// patterns are regular expressions of RE2 (no lookahead).
	Output output `yaml:"output" type:"word text, or a JSON schema" otherwise:"text"`
	// A shell command that must exit 0 in the workspace afterwards; otherwise the attempt failed.
	Verify string `yaml:"verify"`
	// An id of your own that goes into every event and log line of the job.
	Trace string `yaml:"trace"`
	// What the job belongs to, in ids of your own of at most 256 bytes. `show`, the API, the
	// [trace](observability.md#traces) and the [audit log](audit.md) tell them; nothing follows from
	// them, and the worker does not see them.
	Context job.Context `yaml:"context"`
	// The kind of worker: `codex`, `claude`, `opencode`, `shell`, or one from the
	// [configuration](config.md). `TOOL` runs on `shell` only, `LLM` never. `best`: the one of
	// `candidates` whose work has been best so far: [evaluation.md](evaluation.md).
	Worker string `yaml:"worker" otherwise:"required; shell for TOOL, PLUGIN_EVENT, MAINTENANCE"`
	// The model, as the worker's program calls it.
	Model string `yaml:"model" otherwise:"the worker's own"`
	// Workers to try in this order when the first cannot, each `worker` or `worker:model`. The first
	// colon divides; a model may hold more of them.
	Fallback []choice `yaml:"fallback" type:"text"`
	// The workers to choose from, written like those of `fallback`, instead of `model` and `fallback`.
	Candidates *[]choice `yaml:"candidates" type:"text" otherwise:"required with worker: best"`
	// The folder that the job works in. Not for `LLM`.
	Workspace *workspace `yaml:"workspace" otherwise:"an empty folder"`
	// What the job requires of the host that it runs on; all that is given has to hold:
	// [placement](fleet.md#placement).
	Node job.Node `yaml:"node" otherwise:"any host"`
	// `read`, `edit`: files of the workspace. `run_commands`: any command, or those of
	// `allow_commands`. `run_tests`: the usual test commands. `network`: reach the network from tools.
	// `scheduler`: [submit jobs of its own](conversation.md#agents-that-use-the-scheduler) within what its job has left.
	Capabilities *[]job.Capability `yaml:"capabilities" otherwise:"[read, edit, run_commands]; none for LLM; required for a WORKER_TASK with isolation direct"`
	// With `run_commands`: the only commands that may be run, as patterns such as `go test *`. A
	// script of the shell worker writes files by redirections (`>`, `>>`) only with `edit`, and none
	// that is plainly outside of the workspace.
	Allow []string `yaml:"allow_commands" match:"\\S" is:"a pattern" want:"a pattern such as 'go test *'" otherwise:"any command"`
	// Names of variables that are passed on: of `run` from its own environment, [also beside a
	// server](cli.md#run-beside-serve), of `submit`, triggers and the API from the scheduler's. Values
	// do not belong in a job file.
	Env []string `yaml:"env"`
	// How the job is held: [sandbox](security.md#what-holds-a-run).
	Sandbox job.Sandbox `yaml:"sandbox" short:"level" otherwise:"what the [configuration](config.md) says"`
	// The hosts that the job may reach, each such as `example.com`, `*.example.com` or `example.com:8443`, or a preset:
	// `crates`, `github`, `go`, `npm`, `pypi`. `none` and `full` stand alone; the capability `network` means `full`. The
	// worker's own model is always reached. Only a sandbox enforces it.
	Network []string `yaml:"network" single:"true" otherwise:"none, or full with the capability network"`
	// Git repositories that the job may fetch from over https with your credentials, which it never sees, if a sandbox holds
	// it: [git](security.md#git-with-your-credentials). Each is `github.com/acme/site`, or `{repository: github.com/acme/site,
	// push: true}`.
	Git []job.Repository `yaml:"git" short:"repository"`
	// Who answers when the agent wants what it was not granted: rules, and people. Without it, that is refused.
	Ask job.Ask `yaml:"ask"`
	// Names of `secrets` of the [configuration](config.md) that the job is given. Values do not belong in a job file.
	Secrets []string `yaml:"secrets" form:"variable" want:"the name of a secret of the configuration, such as NPM_TOKEN, not the secret itself"`
	// Higher is sooner, among the jobs of a tenant.
	Priority int `yaml:"priority" otherwise:"0"`
	// Not before: a time as RFC 3339 has it (`2030-01-31T18:00:00Z`, with its zone), or a duration
	// from when the file is read (`2h`).
	RunnableAt timeOrDuration `yaml:"runnable_at" type:"time or duration" otherwise:"now"`
	// Not started after; the same forms. Must be in the future and after `runnable_at`.
	Deadline timeOrDuration `yaml:"deadline" type:"time or duration"`
	// How patient you are: under overload `batch` is put off first, then `standard`, `interactive`
	// never.
	Class job.Class `yaml:"class,omitempty"`
	// Jobs that must end before this one starts. It is runnable as soon as its own needs are met.
	Needs ids `yaml:"needs" type:"id, or list of ids"`
	// Whether it then runs, such as `jobs.review.output.ok`; otherwise it is skipped.
	If string `yaml:"if"`
	// Do the job once for each item: of a list in the file, or of one that a job answered. A mapping
	// says more:.
	ForEach *forEach `yaml:"for_each" short:"items"`
	// Do the job again and again, each turn in what the last one left, until one of these three holds.
	Loop *job.Loop `yaml:"loop"`
	// Put the patches of these jobs together: `needs` and `workspace.from` in one.
	Merge ids `yaml:"merge" type:"id, or list of ids"`
	// When a person must agree to the work before anything is built on it:
	// [oversight.md](oversight.md). A mapping says more:.
	Oversight *job.Oversight `yaml:"oversight" short:"mode" otherwise:"none: nobody is asked"`
	// How the work is judged: [evaluation.md](evaluation.md).
	Evaluation *job.Evaluation `yaml:"evaluation" otherwise:"none: it is not judged"`
	// On whose behalf the job runs, beside its tenant. What it uses is kept apart, and can be bounded
	// (`scheduler grant`). The name of a declared [agent](#agents) also gives the job that agent's
	// profile.
	Agent job.AgentID `yaml:"agent,omitempty" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as agent-7"`
	// The field that the task is from, such as `legal`: a built-in one (`dashboard`, `legal`,
	// `security`), one of its agent's `domains`, or one with a table (`recovery.domains`) or weights
	// (`evaluation.weights`) in the [configuration](config.md). Any other is an error. What is done
	// about a failure may depend on it: [recovery.md](recovery.md).
	Domain string `yaml:"domain,omitempty" form:"word" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal"`
	// What the job is expected to use in all, for policies that share it out.
	Expect job.Expectation `yaml:"expect" otherwise:"expect of the [configuration](config.md)"`
	// A name for the work, such as `deploy-website`: at most 256 bytes in one line.
	Key string `yaml:"key" otherwise:"derived from the job if on_duplicate is given, else none"`
	// See below.
	OnDuplicate job.DuplicatePolicy `yaml:"on_duplicate,omitempty" otherwise:"coalesce with a key; else duplicates are not looked for"`
	// The id of the user's turn that asks, a part of the derived key: the same words in another turn
	// are another job. Only with `on_duplicate` and without `key`.
	Turn string `yaml:"turn"`
	// Bounds of the job.
	Limits job.Limits `yaml:"limits"`

	vetted bool // the worker was looked at where it was found
	ofBest bool // the worker and the fallback are candidates
}

// SetDefaults sets the limits of a job that names none.
func (e *entry) SetDefaults() { e.Limits.SetDefaults() }

type workspace struct {
	// A folder that exists, and not the state directory or one within it. `scheduler submit --server` brings that of your host along.
	Path string `yaml:"path" otherwise:"required, except with repo or none"`
	// The address of a git repository instead of a folder: `https://HOST/PATH`, `ssh://HOST/PATH`, `USER@HOST:PATH`, or an absolute path
	// on the host where the job runs. Each host keeps a mirror of it, and the job has a worktree of that. Git logs in as it does for
	// the user that runs the scheduler, and asks nobody.
	Repo string `yaml:"repo" otherwise:"a folder"`
	// `worktree`: a working tree with a .git of its own, on a branch of its own, which in the end holds a commit of the work in your repository, too.
	// `copy`: a copy of the folder. `direct`: the folder itself, so the job changes your files; one
	// job at a time works in it or in a folder within, also of several schedulers. `none`: an empty
	// folder.
	Isolation job.Isolation `yaml:"isolation,omitempty" otherwise:"worktree inside a git repository, else copy"`
	// The commit, branch or tag that a worktree starts from.
	Base string `yaml:"base"`
	// Jobs among the `needs` whose patches are applied, in this order, before the worker starts. With
	// isolation `worktree` or `copy`.
	From ids `yaml:"from" type:"id, or list of ids"`
	// If they do not fit together. `fail`: the job fails and names the files. `worker`: the places are
	// marked in the files, and the worker resolves them.
	OnConflict job.Conflict `yaml:"on_conflict,omitempty"`
}

// forEach has the items in a form of their own.
type forEach struct {
	// The items.
	Items items `yaml:"items" type:"list or expression" need:"a list or an expression such as ${{ jobs.find.output }}"`
	// Items that are allowed, at most 10,000; more are a failure, not a cut.
	Max int `yaml:"max,omitempty" min:"1" max:"10000" otherwise:"100"`
	// Items at once.
	MaxParallel int `yaml:"max_parallel,omitempty" min:"1" want:"1 or more; leave it out for all at once" otherwise:"all"`
}

// SetDefaults sets the cap on the items.
func (f *forEach) SetDefaults() { f.Max = job.DefaultForEachMax }

type agent struct {
	// The name by which jobs take the profile, in their field `agent`: 1 to 128 of `a-z A-Z 0-9` and,
	// not first, `- _ . : / @`.
	Name job.AgentID `yaml:"name" need:"a name for the agent such as reviewer" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as reviewer"`
	// What its jobs may do. A job can only narrow them.
	Capabilities *[]job.Capability `yaml:"capabilities" otherwise:"those of any job"`
	// What its tasks may be from: a job's `domain` must be one of them, and is, if there is only one.
	Domains []string `yaml:"domains" form:"word" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal" otherwise:"any"`
	// What the `input` of its jobs must satisfy: checked when the file is read, or when the job
	// starts, if it holds expressions. Jobs of a pipeline's stages are given events instead.
	Input schema `yaml:"input" type:"JSON schema"`
	// Its jobs' default.
	Output output `yaml:"output" type:"word text, or a JSON schema" otherwise:"text"`
	// Its jobs' default.
	Worker string `yaml:"worker"`
	// Its jobs' default.
	Model string `yaml:"model"`
	// Its jobs' default.
	Fallback []choice `yaml:"fallback" type:"text"`
	// Its jobs' default.
	SystemPrompt string `yaml:"system_prompt"`
	// Its jobs' default.
	Oversight *job.Oversight `yaml:"oversight" short:"mode"`
	// Its jobs are judged, by the weights of this domain unless they name another.
	EvaluationDomain string `yaml:"evaluation_domain,omitempty" form:"word" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal"`
}

// agentsFile is a file of agents that several job files share.
type agentsFile struct {
	Agents []agent `yaml:"agents" need:"a list of agents" items:"1"`
}
