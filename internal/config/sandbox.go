package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

// Sandbox is how runs are held and what of the host they see.
type Sandbox struct {
	// How firmly runs are held whose job does not ask for more: `strict`, `standard`, `none`, or `strongest`, which is
	// the stronger one of `strict` and `standard` that the host has. A run that the host cannot hold so does not start.
	Level job.SandboxLevel `json:"level,omitempty" words:"strongest strict standard none" otherwise:"strongest"`
	// What becomes of what a run may not do. `enforce`: it is refused. `report`: it is done and recorded, for runs whose job
	// names no level; they are compared with `level`, by default `standard`, and `scheduler doctor --sandbox` prints the
	// grants that they need. Where the scheduler is not root, setuid programs such as sudo then have no effect in runs.
	Mode SandboxMode `json:"mode,omitempty" words:"enforce report" otherwise:"enforce; see [hosts from before](security.md#hosts-from-before)"`
	// The least that a job may ask for.
	Least job.SandboxLevel `json:"least,omitempty" words:"strict standard none" otherwise:"the same as level; standard if that is strongest"`
	// Files and folders that runs may read besides what every run sees: absolute paths. A job with a list of its own gets
	// that part of it which lies within these.
	Read []string `json:"read,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /srv/data"`
	// Files and folders that runs may change besides their workspace: absolute paths. Likewise.
	Write []string `json:"write,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /srv/data"`
	// Files and folders that no run sees, whatever else is granted: absolute paths.
	Hide []string `json:"hide,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /srv/data"`
	// Whether runs see the login of their worker's program. `hidden`: models are asked through the core, which has the key
	// or the login. `visible`: the run has it, for a program whose models the core cannot ask; what such a run spends is
	// known from its program alone.
	Login Login `json:"login,omitempty" words:"hidden visible" otherwise:"hidden"`
	// Whether the files that runs are refused at level `standard` are told in their logs. The kernel then writes each to the
	// host's audit log, which a run can flood: [security.md](security.md#what-a-run-is-refused).
	Audit bool `json:"audit,omitempty"`
}

// SandboxMode is whether runs are held.
type SandboxMode string

// The modes.
const (
	SandboxEnforce SandboxMode = "enforce"
	SandboxReport  SandboxMode = "report"
)

// Login is whether runs see logins.
type Login string

// The two.
const (
	LoginHidden  Login = "hidden"
	LoginVisible Login = "visible"
)

// Levels returns the level of runs whose job names none, which can be job.SandboxStrongest, and the least that a job may
// ask for.
func (s Sandbox) Levels() (level, least job.SandboxLevel) {
	level = cmp.Or(s.Level, job.SandboxStrongest)
	switch {
	case s.Least != "":
		return level, s.Least
	case s.Mode == SandboxReport:
		return level, job.SandboxNone
	case level == job.SandboxStrongest:
		return level, job.SandboxStandard
	}
	return level, level
}

// Reports says whether runs are told of instead of held. enforces is whether that is the other way round where the
// configuration says nothing under sandbox.
func (s Sandbox) Reports(enforces bool) bool {
	switch {
	case s.Mode != "":
		return s.Mode == SandboxReport
	case reflect.ValueOf(s).IsZero():
		return !enforces
	}
	return false
}

// Grants returns what a job asks for that this host does not allow: less of a sandbox than the least, paths beyond those
// that runs may have, secrets that are not there or are another tenant's. Those of a job that says on which other host it runs are
// looked at there, when it begins.
func (c *Config) Grants(s *job.Spec) []*job.FieldError {
	var errs []*job.FieldError
	bad := func(field, format string, args ...any) {
		errs = append(errs, &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if _, least := c.Sandbox.Levels(); s.Sandbox.Level != "" && s.Sandbox.Level.Weaker(least) {
		bad("sandbox.level", "%s is less than this host allows, which is %s; ask for that or more, or have sandbox.least lowered in the configuration", s.Sandbox.Level, least)
	}
	for _, list := range []struct {
		field      string
		asked, has []string
	}{{"sandbox.read", s.Sandbox.Read, slices.Concat(c.Sandbox.Read, c.Sandbox.Write)}, {"sandbox.write", s.Sandbox.Write, c.Sandbox.Write}} {
		for i, path := range list.asked {
			if !slices.ContainsFunc(list.has, func(dir string) bool { return pathWithin(path, dir) }) {
				bad(fmt.Sprintf("%s[%d]", list.field, i), "%s is not within what %s of the configuration allows; have it added there", path, list.field)
			}
		}
	}
	if !s.Node.IsZero() {
		return errs // secrets are those of the host where it runs, whose core gives them
	}
	for i, name := range s.Secrets {
		at := fmt.Sprintf("secrets[%d]", i)
		secret, known := c.Secrets[name]
		switch {
		case !known:
			hint := ""
			if near := fields.Nearest(name, slices.Sorted(maps.Keys(c.Secrets))); near != "" {
				hint = fmt.Sprintf("; did you mean %s?", near)
			}
			bad(at, "%q is no secret of the configuration%s", name, hint)
		case len(secret.Tenants) > 0 && !slices.Contains(secret.Tenants, cmp.Or(s.Tenant, job.DefaultTenant)):
			bad(at, "%q is not given to jobs of tenant %s; have it added to secrets.%s.tenants of the configuration", name, cmp.Or(s.Tenant, job.DefaultTenant), name)
		}
	}
	return errs
}

// pathWithin reports whether a clean absolute path is dir or lies in it.
func pathWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// sandbox refuses paths that could mean others later on, and a bound above what it bounds.
func (v *validator) sandbox() {
	s := v.config.Sandbox
	if level, least := s.Levels(); level != job.SandboxStrongest && level.Weaker(least) && !v.Blamed("sandbox.level") && !v.Blamed("sandbox.least") {
		v.Failf("sandbox.least", "%s is more than sandbox.level, which is %s: no job without a level of its own could start", least, level)
	}
	for _, list := range []struct {
		field string
		paths []string
	}{{"sandbox.read", s.Read}, {"sandbox.write", s.Write}, {"sandbox.hide", s.Hide}} {
		for i, path := range list.paths {
			if filepath.IsAbs(path) {
				v.folder(fmt.Sprintf("%s[%d]", list.field, i), path)
			}
		}
	}
}

// Secret is where a secret is found, which jobs name in `secrets`: exactly one of `file`, `command` and `env`. It is
// looked up for each run that is granted it, never kept, and taken out of all that is told of the run.
type Secret struct {
	// A file that holds it, an absolute path; a line break at its end is left out.
	File string `json:"file,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /etc/agentsched/npm-token"`
	// A command that prints it, such as `[pass, show, npm]`; a line break at its end is left out.
	Command []string `json:"command,omitempty" items:"1" want:"a program and its arguments, such as [pass, show, npm]"`
	// The name of a variable of the scheduler that holds it.
	Env string `json:"env,omitempty" form:"variable" want:"the name of the variable that holds the secret, such as NPM_TOKEN, not the secret itself"`
	// How a run gets it. `file`: in a file of its private folder, whose path is in the variable `NAME_FILE`. `variable`: in
	// the variable `NAME`, which every program of the run sees.
	As SecretForm `json:"as,omitempty" words:"file variable" otherwise:"file"`
	// The tenants whose jobs may be given it.
	Tenants []job.Tenant `json:"tenants,omitempty" otherwise:"all"`
}

// SecretForm is how a run gets a secret.
type SecretForm string

// The forms.
const (
	SecretFile     SecretForm = "file"
	SecretVariable SecretForm = "variable"
)

// secrets refuses those that are found nowhere, or in two places.
func (v *validator) secrets() {
	for _, name := range slices.Sorted(maps.Keys(v.config.Secrets)) {
		path, s := fields.Join("secrets", name), v.config.Secrets[name]
		v.oneSource(path, s.File, s.Command, s.Env)
	}
}

// oneSource refuses a secret or a key that is found nowhere, or in two places.
func (v *validator) oneSource(path, file string, command []string, env string) {
	n := 0
	for _, given := range []bool{file != "", len(command) > 0, env != ""} {
		if given {
			n++
		}
	}
	switch {
	case v.faulty(path):
	case n == 0:
		v.Failf(path, "says nowhere to find it, want one of file, command and env")
	case n > 1:
		v.Failf(path, "is given by more than one of file, command and env; keep one")
	}
	v.program(path+".command[0]", command)
}
