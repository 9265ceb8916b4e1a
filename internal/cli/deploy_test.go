package cli

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/wire"
)

// The compose file and the manifests are data of others' programs: deploy/schema_test.go
// checks them by those programs' types. Here they have to fit this program.

const deployFolder = "../../deploy/"

// deployed is a container as both kinds of files describe one.
type deployed struct {
	name, image string
	args, probe []string // after the program's name
	env         []string
	files       map[string]string // path in the container: what it is, such as the name of a secret
	config      string            // text of the file that --config names
	grace       time.Duration
	unknown     []string // names of secrets, configurations, volumes and networks
}

// check returns what does not fit the program.
func (d *deployed) check(t *testing.T) (errs []error) {
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(d.name+": "+format, args...))
	}
	for _, x := range d.unknown {
		bad("%s is not there", x)
	}
	if d.image != "agentsched" {
		bad("image %q, want agentsched, as docs/daemon.md builds it", d.image)
	}
	for _, line := range [][]string{d.args, d.probe} {
		if line == nil {
			continue
		}
		m := newTestMain(t, nil)
		root := m.rootCommand()
		cmd, rest, err := root.Find(line)
		if err == nil {
			err = errors.Join(cmd.ParseFlags(rest), validArgs(cmd))
		}
		if err != nil {
			bad("scheduler %q: %v", line, err)
			continue
		}
		for _, file := range []string{m.at.tokenFile, m.at.caFile, m.prog.configPath} {
			if _, ok := d.file(file); file != "" && !ok {
				bad("scheduler %s: no file %s is mounted", cmd.Name(), file)
			}
		}
		if m.at.server != "" {
			if _, err := wire.ParseAddresses(m.at.server); err != nil {
				bad("--server: %v", err)
			}
		}
	}
	cfg, err := config.Decode(d.name, []byte(d.config), config.Options{Environ: d.env})
	if err != nil {
		bad("%v", err)
		return errs
	}
	if stages := stopTime(&cfg); d.grace < 2*stages {
		bad("%s to stop, want well above %s", d.grace, stages)
	}
	paths := []string{cfg.API.TLS.Cert, cfg.API.TLS.Key}
	for _, m := range regexp.MustCompile(`(?:passfile|sslrootcert)=([^&]+)`).FindAllStringSubmatch(cfg.Fleet.Store, -1) {
		paths = append(paths, m[1])
	}
	for _, file := range paths {
		if _, ok := d.file(file); file != "" && !ok {
			bad("the configuration names %s, which is not mounted", file)
		}
	}
	// What a run may read in any case is no place for secrets.
	for file, what := range d.files {
		if strings.HasPrefix(what, "secret ") && !strings.HasPrefix(file, "/run/secrets/") {
			bad("%s is mounted at %s, want a place below /run/secrets, which no run may read", what, file)
		}
	}
	if d.args[len(d.args)-1] == "serve" {
		if cfg.Fleet.Store == "" || !strings.HasSuffix(cfg.Fleet.Listen, ":7434") || !strings.HasSuffix(cfg.Fleet.Advertise, ":7434") || !strings.HasSuffix(cfg.API.Listen, ":7433") || cfg.Fleet.Work {
			bad("fleet is %+v and api.listen %s", cfg.Fleet, cfg.API.Listen)
		}
		if !strings.Contains(cfg.Fleet.Store, "passfile=") {
			bad("the password's file is not named in %s", cfg.Fleet.Store)
		}
	} else if cfg.Fleet.Store != "" {
		bad("a node has the address of the database")
	}
	return errs
}

// file says what is at a path, or in a folder above it.
func (d *deployed) file(name string) (string, bool) {
	for at := name; at != "/" && at != "."; at = path.Dir(at) {
		if what, ok := d.files[at]; ok {
			return what, true
		}
	}
	return "", false
}

type composeFile struct {
	Services map[string]*composeService
	Configs  map[string]struct{ Content string }
	Secrets  map[string]struct{ File string }
	Volumes  map[string]any
	Networks map[string]struct{ Internal bool }
}

type composeService struct {
	Image       string
	Command     []string
	Environment map[string]string
	Secrets     []any
	Configs     []any
	Volumes     []string
	Networks    any
	Ports       []string
	Grace       string                                `yaml:"stop_grace_period"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Health      struct{ Test []string }               `yaml:"healthcheck"`
	Security    []string                              `yaml:"security_opt"`
	Cap         []string                              `yaml:"cap_drop"`
}

// names returns the networks of a service, with the names that it has there.
func (s *composeService) names() map[string][]string {
	all := map[string][]string{}
	switch list := s.Networks.(type) {
	case []any:
		for _, x := range list {
			all[x.(string)] = nil
		}
	case map[string]any:
		for name, x := range list {
			all[name] = nil
			if m, ok := x.(map[string]any); ok && m["aliases"] != nil {
				for _, alias := range m["aliases"].([]any) {
					all[name] = append(all[name], alias.(string))
				}
			}
		}
	}
	return all
}

// mounts resolves short and long forms of secrets and configs: source by target.
func mounts(list []any) map[string]string {
	all := map[string]string{}
	for _, x := range list {
		switch x := x.(type) {
		case string:
			all[x] = x
		case map[string]any:
			all[x["target"].(string)] = x["source"].(string)
		}
	}
	return all
}

// checkCompose returns what in the compose file does not fit the program, or itself.
func checkCompose(t *testing.T, text []byte) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var f composeFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		return []error{err}
	}
	used := map[string]bool{}
	for name, s := range f.Services {
		d := &deployed{name: name, image: s.Image, args: s.Command, files: map[string]string{"/state": "volume"}}
		for target, source := range mounts(s.Secrets) {
			if _, ok := f.Secrets[source]; !ok {
				d.unknown = append(d.unknown, "secret "+source)
			}
			used[source] = true
			d.files["/run/secrets/"+target] = "secret " + source
		}
		for target, source := range mounts(s.Configs) {
			c, ok := f.Configs[source]
			if !ok {
				d.unknown = append(d.unknown, "config "+source)
			}
			d.files[target], d.config = "config", c.Content
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := f.Volumes[volume]; !ok {
				d.unknown = append(d.unknown, "volume "+volume)
			}
			if used["volume "+volume] {
				bad("%s: another service has the volume %s, too", name, volume)
			}
			used["volume "+volume] = true
		}
		for network := range s.names() {
			if _, ok := f.Networks[network]; !ok {
				d.unknown = append(d.unknown, "network "+network)
			}
		}
		for k, v := range s.Environment {
			d.env = append(d.env, k+"="+v)
			if strings.Contains(strings.ToLower(k), "password") && !strings.HasPrefix(v, "/run/secrets/") {
				bad("%s: %s is no file below /run/secrets", name, k)
			}
		}
		for other, on := range s.DependsOn {
			if f.Services[other] == nil || on.Condition != "service_healthy" || len(f.Services[other].Health.Test) == 0 {
				bad("%s waits for %s, which cannot be healthy", name, other)
			}
		}
		if len(s.Health.Test) < 2 || s.Health.Test[0] != "CMD" {
			bad("%s: healthcheck is %q", name, s.Health.Test)
		}
		if name == "postgres" {
			continue
		}
		if len(s.Health.Test) > 2 {
			if s.Health.Test[1] != "scheduler" {
				bad("%s: healthcheck calls %s", name, s.Health.Test[1])
			}
			d.probe = s.Health.Test[2:]
		}
		d.grace, _ = time.ParseDuration(s.Grace)
		if !slices.Equal(s.Cap, []string{"ALL"}) || !slices.Equal(s.Security, []string{"no-new-privileges:true"}) {
			bad("%s: cap_drop %q, security_opt %q", name, s.Cap, s.Security)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") || !strings.HasSuffix(p, ":7433") {
				bad("%s: port %s, want one of the loopback that leads to 7433", name, p)
			}
		}
		errs = append(errs, d.check(t)...)
		_, onDatabase := s.names()["database"]
		if serves := d.args[len(d.args)-1] == "serve"; serves != onDatabase {
			bad("%s: on the network of the database: %t", name, onDatabase)
		}
		errs = append(errs, knownServers(d, f.hosts())...)
	}
	if !f.Networks["database"].Internal {
		bad("the network of the database is not internal")
	}
	for name, s := range f.Secrets {
		if !used[name] {
			bad("no service has the secret %s", name)
		}
		if s.File != "./secrets/"+name {
			bad("secret %s is in %s", name, s.File)
		}
	}
	return errs
}

// hosts are the names that schedulers are called by, and take.
func (f *composeFile) hosts() []string {
	cfg, err := config.Decode("scheduler", []byte(f.Configs["scheduler"].Content), config.Options{})
	if err != nil {
		return nil
	}
	var list []string
	for name, s := range f.Services {
		for _, x := range append(slices.Concat(slices.Collect(maps.Values(s.names()))...), name) {
			if slices.Contains(cfg.API.Hosts, x) {
				list = append(list, x)
			}
		}
	}
	return list
}

// knownServers returns which of the addresses that a container asks are no names of schedulers.
func knownServers(d *deployed, hosts []string) (errs []error) {
	for _, line := range [][]string{d.args, d.probe} {
		i := slices.Index(line, "--server")
		if i < 0 {
			continue
		}
		urls, _ := wire.ParseAddresses(line[i+1])
		for _, u := range urls {
			if !slices.Contains(hosts, u.Hostname()) || u.Port() != "7433" || u.Scheme != "https" {
				errs = append(errs, fmt.Errorf("%s: %s is no address of a scheduler, of %q", d.name, u, hosts))
			}
		}
	}
	return errs
}

// TestComposeFits: the services are command lines, configurations, names and files that fit each other.
func TestComposeFits(t *testing.T) {
	text, err := os.ReadFile(deployFolder + "compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range checkCompose(t, text) {
		t.Error(err)
	}
	for old, other := range map[string]string{
		"/run/secrets/node.token, --ca": "/run/secrets/nodes.token, --ca",
		"--token-file":                  "--tokenfile",
		"serve]":                        "server]",
		"work: false":                   "works: false",
		"work: false #":                 "work: true #",
		"AGENTSCHED_FLEET__ADVERTISE":   "AGENTSCHED_FLEET__ADVERTISED",
		"scheduler-1:7434":              "scheduler-1:7433",
		"stop_grace_period: 60s\n\nx-":  "stop_grace_period: 20s\n\nx-",
		"networks: [fleet]":             "networks: [fleet, database]",
		"https://schedulers:7433":       "https://scheduler:7433",
		"  pgpass: {file":               "  pgpasses: {file",
		"- pgpass\n":                    "- ca.crt\n",
		"passfile=/run/secrets/pgpass":  "password=secret",
		"target: tls.key":               "target: tls.pem",
		"https://scheduler-2:7433\",":   "https://scheduler-2:7434\",",
		"internal: true":                "internal: false",
		"node-2:/state":                 "node-1:/state",
		"_FILE: /run/secrets/postgres":  ": postgres",
		"image: agentsched":             "image: agentsched:1",
		"127.0.0.1:7433:7433":           "7433:7433",
		"condition: service_healthy":    "condition: service_started",
		"cap_drop: [ALL]":               "cap_drop: [SYS_ADMIN]",
	} {
		if !bytes.Contains(text, []byte(old)) {
			t.Errorf("no %q", old)
		} else if len(checkCompose(t, bytes.Replace(text, []byte(old), []byte(other), 1))) == 0 {
			t.Errorf("%q in place of %q goes unnoticed", other, old)
		}
	}
}

type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Pod         pod            `yaml:",inline"`
		ServiceName string         `yaml:"serviceName"`
		Replicas    int            `yaml:"replicas"`
		Selector    map[string]any `yaml:"selector"`
		PodSelector map[string]any `yaml:"podSelector"`
		Template    struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
		Claims []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		Ports  []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		MaxUnavailable int `yaml:"maxUnavailable"`
	}
}

type pod struct {
	Grace           int  `yaml:"terminationGracePeriodSeconds"`
	Token           bool `yaml:"automountServiceAccountToken"`
	SecurityContext struct {
		RunAsUser      int                   `yaml:"runAsUser"`
		FSGroup        int                   `yaml:"fsGroup"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []struct {
		Name, Image   string
		Command, Args []string
		Env           []struct{ Name, Value string }
		Ports         []struct {
			Name string
			Port int `yaml:"containerPort"`
		}
		Startup   *probe `yaml:"startupProbe"`
		Liveness  *probe `yaml:"livenessProbe"`
		Readiness *probe `yaml:"readinessProbe"`
		Mounts    []struct {
			Name        string
			MountPath   string `yaml:"mountPath"`
			SubPathExpr string `yaml:"subPathExpr"`
		} `yaml:"volumeMounts"`
	}
	Volumes []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			Name string `yaml:"secretName"`
			Mode int    `yaml:"defaultMode"`
		}
	}
}

type probe struct {
	HTTP struct{ Path, Port, Scheme string } `yaml:"httpGet"`
	Exec struct{ Command []string }
}

// secretsMade are what docs/fleet.md has the user make: what is in no manifest.
func secretsMade(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, m := range regexp.MustCompile(`create (secret [a-z]+|configmap) ([a-z-]+)`).FindAllStringSubmatch(string(text), -1) {
		list = append(list, m[2])
	}
	return list
}

// checkKubernetes returns what in the manifests does not fit the program, or each other.
func checkKubernetes(t *testing.T, files map[string][]byte) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var all []manifest
	named := map[string]manifest{}
	for name, text := range files {
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var m manifest
			if err := yaml.Unmarshal(doc, &m); err != nil {
				return []error{fmt.Errorf("%s: %w", name, err)}
			}
			if m.Kind == "Secret" {
				bad("%s holds a Secret", name)
			}
			all = append(all, m)
			named[m.Kind+" "+m.Metadata.Name] = m
		}
	}
	made := secretsMade(t)
	hosts := []string{"agentsched"}
	schedulers := named["StatefulSet agentsched"]
	for i := range schedulers.Spec.Replicas {
		hosts = append(hosts, fmt.Sprintf("agentsched-%d.%s", i, schedulers.Spec.ServiceName))
	}
	for _, m := range all {
		p := m.Spec.Pod
		if m.Kind == "StatefulSet" {
			p = m.Spec.Template.Spec
			if s, ok := named["Service "+m.Spec.ServiceName]; !ok || fmt.Sprint(s.Spec.Selector) != fmt.Sprint(m.Spec.Template.Metadata.Labels) {
				bad("%s: its Service %q is not there, or selects others", m.Metadata.Name, m.Spec.ServiceName)
			}
			if b, ok := named["PodDisruptionBudget "+m.Metadata.Name]; !ok || b.Spec.MaxUnavailable != 1 || fmt.Sprint(b.Spec.Selector["matchLabels"]) != fmt.Sprint(m.Spec.Template.Metadata.Labels) {
				bad("%s has no PodDisruptionBudget that allows one", m.Metadata.Name)
			}
			if fmt.Sprint(m.Spec.Selector["matchLabels"]) != fmt.Sprint(m.Spec.Template.Metadata.Labels) {
				bad("%s does not select its pods", m.Metadata.Name)
			}
		} else if m.Kind != "Pod" {
			continue
		}
		if p.SecurityContext.RunAsUser != 1000 || p.SecurityContext.FSGroup != 1000 || p.SecurityContext.SeccompProfile.Type != "RuntimeDefault" {
			bad("%s: securityContext %+v, want the user of the image", m.Metadata.Name, p.SecurityContext)
		}
		c := p.Containers[0]
		d := &deployed{name: m.Metadata.Name, image: c.Image, args: c.Args, files: map[string]string{}, grace: time.Duration(p.Grace) * time.Second}
		volumes := map[string]string{}
		for _, claim := range m.Spec.Claims {
			volumes[claim.Metadata.Name] = "volume"
		}
		for _, v := range p.Volumes {
			volumes[v.Name] = "volume"
			switch {
			case v.Secret.Name != "":
				volumes[v.Name] = "secret " + v.Secret.Name
				if !slices.Contains(made, v.Secret.Name) {
					bad("%s: docs/fleet.md does not make the Secret %s", m.Metadata.Name, v.Secret.Name)
				}
				// The owner is root and the group fsGroup: the scheduler takes no key that others can read.
				if v.Secret.Mode != 0o440 {
					bad("%s: defaultMode of %s is %o", m.Metadata.Name, v.Secret.Name, v.Secret.Mode)
				}
			case v.ConfigMap.Name != "":
				config, ok := named["ConfigMap "+v.ConfigMap.Name]
				if !ok && !slices.Contains(made, v.ConfigMap.Name) {
					bad("%s: there is no ConfigMap %s", m.Metadata.Name, v.ConfigMap.Name)
				}
				if text := config.Data["config.yaml"]; text != "" {
					d.config = text
				}
			}
		}
		for _, v := range c.Mounts {
			if volumes[v.Name] == "" {
				d.unknown = append(d.unknown, "volume "+v.Name)
			}
			d.files[v.MountPath] = volumes[v.Name]
			if volumes[v.Name] == "secret agentsched-node-tokens" && v.SubPathExpr != "$(POD_NAME)" {
				bad("%s sees the tokens of other nodes", m.Metadata.Name)
			}
			delete(volumes, v.Name)
		}
		for name := range volumes {
			bad("%s: the volume %s is not mounted", m.Metadata.Name, name)
		}
		if d.files["/state"] != "volume" {
			bad("%s: /state is no volume", m.Metadata.Name)
		}
		if m.Kind == "Pod" {
			continue // it runs sleep
		}
		for _, e := range c.Env {
			d.env = append(d.env, e.Name+"="+strings.ReplaceAll(e.Value, "$(POD_NAME)", m.Metadata.Name+"-0"))
		}
		ports := map[string]int{}
		for _, port := range c.Ports {
			ports[port.Name] = port.Port
		}
		if c.Readiness == nil {
			bad("%s has no readinessProbe", m.Metadata.Name)
		}
		for _, x := range []*probe{c.Startup, c.Liveness, c.Readiness} {
			switch {
			case x == nil:
			case x.HTTP.Path != "":
				if ports[x.HTTP.Port] != 7433 || x.HTTP.Scheme != "HTTPS" || !slices.Contains([]string{"/healthz", "/readyz"}, x.HTTP.Path) {
					bad("%s: no probe can ask %+v", m.Metadata.Name, x.HTTP)
				}
			case len(x.Exec.Command) < 2 || x.Exec.Command[0] != "scheduler":
				bad("%s: a probe calls %q", m.Metadata.Name, x.Exec.Command)
			default:
				d.probe = x.Exec.Command[1:]
			}
		}
		errs = append(errs, d.check(t)...)
		errs = append(errs, knownServers(d, hosts)...)
		if d.args[len(d.args)-1] == "serve" {
			cfg, err := config.Decode("config", []byte(d.config), config.Options{})
			for _, h := range hosts {
				if err == nil && !slices.Contains(cfg.API.Hosts, h) {
					bad("api.hosts has no %s", h)
				}
			}
			for _, service := range []string{"Service agentsched", "Service " + m.Spec.ServiceName} {
				for _, port := range named[service].Spec.Ports {
					if ports[port.TargetPort] != port.Port {
						bad("%s: port %d leads to %s", service, port.Port, port.TargetPort)
					}
				}
			}
		}
	}
	var k struct {
		Resources []string
		Images    []struct{ Name string }
	}
	if err := yaml.UnmarshalWithOptions(files["kustomization.yaml"], &k); err != nil {
		return append(errs, err)
	}
	for name := range files {
		if listed := slices.Contains(k.Resources, name); listed == (name == "kustomization.yaml" || name == "toolbox.yaml") {
			bad("kustomization.yaml: %s among the resources: %t", name, listed)
		}
	}
	for _, name := range k.Resources {
		if files[name] == nil {
			bad("kustomization.yaml: there is no %s", name)
		}
	}
	if len(k.Images) != 1 || k.Images[0].Name != "agentsched" {
		bad("kustomization.yaml: images %v", k.Images)
	}
	return errs
}

// TestKubernetesFits: the manifests fit the program, and each other.
func TestKubernetesFits(t *testing.T) {
	list, err := filepath.Glob(deployFolder + "kubernetes/*.yaml")
	if err != nil || len(list) == 0 {
		t.Fatal("no manifests", err)
	}
	files := map[string][]byte{}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = text
	}
	for _, err := range checkKubernetes(t, files) {
		t.Error(err)
	}
	for _, x := range []struct{ file, old, other string }{
		{"scheduler.yaml", "path: /readyz", "path: /ready"},
		{"scheduler.yaml", "scheme: HTTPS", "scheme: HTTP"},
		{"scheduler.yaml", "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 30"},
		{"scheduler.yaml", "serviceName: agentsched-schedulers", "serviceName: schedulers"},
		{"scheduler.yaml", "containerPort: 7433", "containerPort: 8080"},
		{"scheduler.yaml", "ADVERTISE", "ADVERTISED"},
		{"scheduler.yaml", "secretName: agentsched-tls", "secretName: agentsched-certificate"},
		{"scheduler.yaml", "secretName: agentsched-tls, defaultMode: 0440", "secretName: agentsched-tls, defaultMode: 0444"},
		{"scheduler.yaml", "image: agentsched", "image: scheduler"},
		{"scheduler.yaml", "runAsUser: 1000", "runAsUser: 0"},
		{"scheduler.yaml", "mountPath: /run/secrets/tls", "mountPath: /etc/tls"},
		{"scheduler.yaml", "maxUnavailable: 1", "maxUnavailable: 2"},
		{"scheduler.yaml", "replicas: 2", "replicas: 3"},
		{"config.yaml", "work: false", "works: false"},
		{"config.yaml", "/run/secrets/database/pgpass", "/run/secrets/pgpass"},
		{"config.yaml", "agentsched-1.agentsched-schedulers, ", ""},
		{"config.yaml", "name: agentsched-node", "name: agentsched-nodes"},
		{"node.yaml", "--token-file", "--token"},
		{"node.yaml", "agentsched-1.agentsched-schedulers:7433", "agentsched-2.agentsched-schedulers:7433"},
		{"node.yaml", "https://agentsched:7433", "https://agentsched-nodes:7433"},
		{"node.yaml", ", subPathExpr: $(POD_NAME)", ""},
		{"node.yaml", "[scheduler, doctor", "[scheduler, doctors"},
		{"node.yaml", "- node\n", "- nodes\n- node\n"},
		{"node.yaml", "kind: PodDisruptionBudget", "kind: PodDisruptionBudgets"},
		{"kustomization.yaml", "network.yaml", "networks.yaml"},
		{"kustomization.yaml", "name: agentsched\n", "name: scheduler\n"},
	} {
		text := files[x.file]
		if !bytes.Contains(text, []byte(x.old)) {
			t.Errorf("%s: no %q", x.file, x.old)
			continue
		}
		changed := maps.Clone(files)
		changed[x.file] = bytes.Replace(text, []byte(x.old), []byte(x.other), 1)
		if len(checkKubernetes(t, changed)) == 0 {
			t.Errorf("%s: %q in place of %q goes unnoticed", x.file, x.other, x.old)
		}
	}
}
