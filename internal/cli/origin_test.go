package cli

import (
	"testing"

	"github.com/agentsched/agentsched/internal/proc"
)

// TestOrigins: what counts as part of an agent's run.
func TestOrigins(t *testing.T) {
	const (
		mine  = "0198c0de-0000-7000-8000-000000000001"
		other = "0198c0de-0000-7000-8000-000000000002"
		run   = "/0198c0de-0000-7000-8000-00000000000a/1"
		group = "/user.slice/agentsched-" + mine + "/x_1"
	)
	args := map[int][]string{10: {"/usr/bin/agentcore"}, 11: {"scheduler", "agentcore"}, 12: {"agentcore", "launch"}, 13: {"scheduler", "serve"}, 14: {"vi", "agentcore"}, 15: {"agentcore " + other + "/core/7-1-1"}}
	above := func(pid int, comm string) []proc.ProcInfo {
		return []proc.ProcInfo{{Proc: proc.Proc{Pid: 9, Comm: "sh"}}, {Proc: proc.Proc{Pid: pid, Comm: comm}}}
	}
	plain := place{pid: 5, args: func(pid int) []string { return args[pid] }}
	first := plain
	first.pid = 1
	nested := plain // a scheduler that an agent has started in its run
	nested.tag, nested.cgroups = other+run, []string{group + "/deeper"}
	for _, tc := range []struct {
		name  string
		o     proc.Origin
		at    place
		isRun bool
	}{
		{"a shell", proc.Origin{}, plain, false},
		{"the scheduler itself", proc.Origin{Proc: proc.Proc{Pid: 5}, Tag: "x"}, plain, false},
		{"below a core", proc.Origin{Below: true, Tree: mine + "/core/5-1-1"}, plain, true},
		{"below a hook", proc.Origin{Below: true, Tree: mine + "/hook/1", Tag: mine + "/hook/1", Cgroups: []string{group}}, plain, false},
		{"below a trigger's command", proc.Origin{Below: true, Tree: mine + "/trigger/1", Tag: mine + "/trigger/1"}, plain, false},
		{"below a look at a new program", proc.Origin{Below: true, Tree: mine + "/upgrade/1"}, plain, true},
		{"below a hook of another", proc.Origin{Below: true, Tree: other + "/hook/1"}, plain, true},
		{"an orphan", proc.Origin{Below: true}, plain, true},
		{"an orphan of the first process", proc.Origin{Below: true}, first, false},
		{"a tagged orphan of the first process", proc.Origin{Below: true, Tag: mine + run}, first, true},
		{"below a core of the first process", proc.Origin{Below: true, Tree: mine + "/core/1-1-1"}, first, true},
		{"a child from before", proc.Origin{Below: true, Inherited: true}, plain, false},
		{"a tagged child from before", proc.Origin{Below: true, Inherited: true, Tag: mine + run}, plain, true},
		{"marked by a core that is gone", proc.Origin{Marked: true}, plain, true},
		{"a marked orphan of the first process", proc.Origin{Below: true, Marked: true}, first, true},
		{"below a core of another that a hook has started", proc.Origin{Below: true, Tree: mine + "/hook/1", Marked: true}, plain, true},
		{"tagged", proc.Origin{Tag: mine + run}, plain, true},
		{"tagged by another", proc.Origin{Tag: other + run}, plain, true},
		{"a forged hook's tag", proc.Origin{Tag: mine + "/hook/1"}, plain, true},
		{"in a run's cgroup", proc.Origin{Cgroups: []string{"/", group}}, plain, true},
		{"below a run's cgroup", proc.Origin{Cgroups: []string{group + "/own/x"}}, plain, true},
		{"in the cgroup of the service", proc.Origin{Cgroups: []string{"/system.slice/agentsched-web.service/x", "/agentsched-" + mine}}, plain, false},
		{"below another's core", proc.Origin{Above: above(10, "agentcore")}, plain, true},
		{"below another's core, by its name", proc.Origin{Above: above(15, "wrapped")}, plain, true},
		{"below another's core, which is the scheduler", proc.Origin{Above: above(11, "scheduler")}, plain, true},
		{"below a program of the same name", proc.Origin{Above: above(12, "agentcore")}, plain, false},
		{"below another scheduler", proc.Origin{Above: above(13, "scheduler")}, plain, false},
		{"below an editor of a file of that name", proc.Origin{Above: above(14, "vi")}, plain, false},
		{"in the same run", proc.Origin{Tag: other + run, Cgroups: []string{group}}, nested, false},
		{"in another run", proc.Origin{Tag: mine + run}, nested, true},
		{"in another run's cgroup", proc.Origin{Tag: other + run, Cgroups: []string{"/user.slice/agentsched-" + mine + "/x_2"}}, nested, true},
	} {
		if why := runOf(&tc.o, mine, tc.at); (why != "") != tc.isRun {
			t.Errorf("%s: %q", tc.name, why)
		}
	}
}

// TestOwnRun: a command that would change a state directory knows a run of that.
func TestOwnRun(t *testing.T) {
	const mine, other = "0198c0de-0000-7000-8000-000000000001", "0198c0de-0000-7000-8000-000000000002"
	core := []proc.ProcInfo{{Proc: proc.Proc{Pid: 10, Comm: "agentcore"}}}
	args := func(int) []string { return []string{"/usr/bin/agentcore"} }
	for _, tc := range []struct {
		name, tag, cgroup string
		above             []proc.ProcInfo
		isRun             bool
	}{
		{"a person", "", "/user.slice", nil, false},
		{"a run", mine + "/j/1", "/", core, true},
		{"its process without the tag", "", "/", core, true},
		{"its process without the tag and the core", "", "/x/agentsched-" + mine + "/" + mine + "_j_1", nil, true},
		{"a hook", mine + "/hook/1", "/x/agentsched-" + mine + "/" + mine + "_hook_1", nil, false},
		{"a trigger's command", mine + "/trigger/1", "/x/agentsched-" + mine + "/" + mine + "_trigger_1", nil, false},
		{"a run's process with a hook's tag", mine + "/hook/1", "/x/agentsched-" + mine + "/" + mine + "_j_1", core, true},
		{"a run of another, with a directory of its own", other + "/j/1", "/x/agentsched-" + other + "/" + other + "_j_1", core, false},
	} {
		if why := ownRun(tc.tag, mine, []string{tc.cgroup}, tc.above, args); (why != "") != tc.isRun {
			t.Errorf("%s: %q", tc.name, why)
		}
	}
}

func TestOfRun(t *testing.T) {
	for tag, want := range map[string]bool{"": false, "i/j/1": true, "i/hook/1": false, "i/trigger/often": false, "odd": true} {
		if ofRun(tag) != want {
			t.Errorf("%q: %t", tag, !want)
		}
	}
}
