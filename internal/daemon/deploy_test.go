package daemon

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
)

const deploy = "../../deploy/"

// stopTime is the longest that a scheduler takes to end with the default
// configuration: docs/config.md has the stages of stop.
const stopTime = 17 * time.Second

// directives reads a unit, and refuses one that names a section of its own.
func directives(t *testing.T, path string, sections ...string) map[string][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := unit.DeserializeOptions(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	all := map[string][]string{}
	for _, o := range list {
		if !slices.Contains(sections, o.Section) {
			t.Errorf("%s: unknown section [%s]", path, o.Section)
		}
		all[o.Section+" "+o.Name] = append(all[o.Section+" "+o.Name], o.Value)
	}
	return all
}

func TestService(t *testing.T) {
	testService(t, "agentsched.service", map[string]string{
		"Service ExecStart": "%h/.local/bin/scheduler serve", "Service ExecReload": "/bin/kill -HUP $MAINPID", "Service EnvironmentFile": "-%E/agentsched/environment",
	})
}

// A node has no reload, needs to be told where its scheduler is, and has a state directory beside that of a scheduler of the same user.
func TestNodeService(t *testing.T) {
	got := testService(t, "agentsched-node.service", map[string]string{
		"Service ExecStart":       "%h/.local/bin/scheduler --state %h/.local/state/agentsched-node --token-file %E/agentsched/node.token --ca %E/agentsched/ca.crt node",
		"Service EnvironmentFile": "%E/agentsched/node.environment",
	})
	if reload := got["Service ExecReload"]; reload != nil {
		t.Errorf("ExecReload is %q; a node reads its configuration at its start", reload)
	}
}

// testService looks at what the units of a scheduler and of a node have in common, and at what is its own.
func testService(t *testing.T, file string, own map[string]string) map[string][]string {
	t.Helper()
	got := directives(t, deploy+"systemd/"+file, "Unit", "Service", "Install")
	wanted := map[string]string{
		"Service Type": "notify", "Service NotifyAccess": "main", "Service Delegate": "yes", "Service KillMode": "mixed", "Service Restart": "on-failure",
		"Service NoNewPrivileges": "yes", "Install WantedBy": "default.target",
	}
	maps.Copy(wanted, own)
	for name, want := range wanted {
		if !slices.Equal(got[name], []string{want}) {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if seconds, err := strconv.Atoi(got["Service TimeoutStopSec"][0]); err != nil || time.Duration(seconds)*time.Second < 2*stopTime {
		t.Errorf("TimeoutStopSec is %q, want well above %s", got["Service TimeoutStopSec"], stopTime)
	}
	if seconds, err := strconv.Atoi(got["Service WatchdogSec"][0]); err != nil || time.Duration(seconds)*time.Second < stopTime {
		t.Errorf("WatchdogSec is %q, want more than what a handover takes", got["Service WatchdogSec"])
	}
	// What would take from agents what they need, or from the scheduler its cgroups.
	for name := range got {
		for _, never := range []string{"ProtectControlGroups", "PrivateUsers", "ProtectHome", "PrivateNetwork", "RestrictNamespaces", "MemoryDenyWriteExecute", "SystemCallFilter", "ProtectSystem", "PrivateTmp"} {
			if name == "Service "+never {
				t.Errorf("%s stands in the unit", name)
			}
		}
	}
	return got
}

func TestSocketUnit(t *testing.T) {
	got := directives(t, deploy+"systemd/agentsched.socket", "Unit", "Socket", "Install")
	if !slices.Equal(got["Socket FileDescriptorName"], []string{API}) || !slices.Equal(got["Socket ListenStream"], []string{"127.0.0.1:7433"}) {
		t.Errorf("got %q", got)
	}
}

// TestVerify asks systemd itself, where there is one.
func TestVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed; TestService looks at the same files")
	}
	home := t.TempDir()
	program := filepath.Join(home, ".local/bin/scheduler")
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agentsched.service", "agentsched-node.service", "agentsched.socket"} {
		text, err := os.ReadFile(deploy + "systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		// %h is the home folder of the password file, whatever HOME says.
		copied := filepath.Join(home, name)
		if err := os.WriteFile(copied, []byte(strings.ReplaceAll(string(text), "%h", home)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), analyze, "--user", "--man=no", "--recursive-errors=no", "verify", copied)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+home, "HOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestPlist reads the property list as launchd does: pairs of a key and a value.
func TestPlist(t *testing.T) {
	f, err := os.Open(deploy + "launchd/com.github.agentsched.scheduler.plist")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	value, err := plist(xml.NewDecoder(f))
	if err != nil {
		t.Fatal(err)
	}
	got := value.(map[string]any)
	if got["Label"] != strings.TrimSuffix(filepath.Base(f.Name()), ".plist") {
		t.Errorf("Label is %v, want the file's name", got["Label"])
	}
	if args, _ := got["ProgramArguments"].([]any); len(args) != 2 || filepath.Base(args[0].(string)) != "scheduler" || !filepath.IsAbs(args[0].(string)) || args[1] != "serve" {
		t.Errorf("ProgramArguments is %v", args)
	}
	if alive, _ := got["KeepAlive"].(map[string]any); got["RunAtLoad"] != true || alive["SuccessfulExit"] != false {
		t.Errorf("RunAtLoad is %v and KeepAlive %v", got["RunAtLoad"], alive)
	}
	if seconds, _ := got["ExitTimeOut"].(int); time.Duration(seconds)*time.Second < 2*stopTime {
		t.Errorf("ExitTimeOut is %v, want well above %s", got["ExitTimeOut"], stopTime)
	}
}

// plist returns the first value of a property list.
func plist(d *xml.Decoder) (any, error) {
	for {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.EndElement:
			return nil, io.EOF // of what is around it
		case xml.StartElement:
			return plistValue(d, token)
		}
	}
}

func plistValue(d *xml.Decoder, start xml.StartElement) (any, error) {
	switch start.Name.Local {
	case "plist":
		return plist(d)
	case "true", "false":
		return start.Name.Local == "true", d.Skip()
	case "key", "string", "integer":
		var text string
		if err := d.DecodeElement(&text, &start); err != nil || start.Name.Local != "integer" {
			return text, err
		}
		return strconv.Atoi(text)
	case "array", "dict":
		var list []any
		for {
			one, err := plist(d)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		if start.Name.Local == "array" {
			return list, nil
		}
		dict := map[string]any{}
		for i := 0; i+1 < len(list); i += 2 {
			dict[list[i].(string)] = list[i+1]
		}
		if len(list)%2 != 0 || len(dict) != len(list)/2 {
			return nil, fmt.Errorf("a dict with the keys and values %v", list)
		}
		return dict, nil
	}
	return nil, fmt.Errorf("unknown element %s", start.Name.Local)
}

// TestContainerfile: the stages are there, and fit this repository.
func TestContainerfile(t *testing.T) {
	f, err := os.Open(deploy + "container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stages, stage := map[string][]string{}, ""
	for s, line := bufio.NewScanner(f), ""; s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		if line += s.Text(); strings.HasSuffix(line, "\\") {
			line = strings.TrimSuffix(line, "\\")
			continue
		}
		if words := strings.Fields(line); len(words) > 0 {
			if words[0] == "FROM" {
				if len(words) != 4 || words[2] != "AS" {
					t.Fatalf("%s: want FROM IMAGE AS STAGE", line)
				}
				stage = words[3]
			} else if !slices.Contains([]string{"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}, words[0]) {
				t.Errorf("%s: no such instruction", line)
			}
			stages[stage] = append(stages[stage], strings.Join(words, " "))
		}
		line = ""
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)[1]
	if want := "FROM docker.io/library/golang:" + string(version) + "-bookworm AS build"; stages["build"][0] != want {
		t.Errorf("got %s, want %s, as go.mod has it", stages["build"][0], want)
	}
	for _, name := range []string{"scheduler", "agents"} {
		for _, want := range []string{"COPY --from=build /out/scheduler /out/agentcore /usr/local/bin/", "USER 1000:1000", "VOLUME /state", `ENTRYPOINT ["/usr/local/bin/scheduler", "--state", "/state"]`, `CMD ["serve"]`} {
			if !slices.Contains(stages[name], want) {
				t.Errorf("stage %s: no %s", name, want)
			}
		}
	}
	for _, program := range []string{"scheduler", "agentcore"} {
		if _, err := os.Stat("../../cmd/" + program); err != nil || !slices.ContainsFunc(stages["build"], func(line string) bool { return strings.Contains(line, "./cmd/"+program) }) {
			t.Errorf("%s is not built: %v", program, err)
		}
	}
}
