// Package deploy checks the compose file and the manifests by the types of those who read
// them. It is a module of its own, so that these are no dependencies of the programs. That
// the files fit the programs is tested in internal/cli.
package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/schema"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// checkCompose returns what is wrong with a compose file by the schema of its specification.
func checkCompose(text []byte) error {
	var file map[string]any
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return err
	}
	return schema.Validate(file)
}

// checkManifests returns what Kubernetes would not know of a file's documents: kinds, fields, types. It returns how
// many there are.
func checkManifests(text []byte) (n int, err error) {
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var is struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(doc, &is); err != nil {
			return n, err
		}
		var into any
		switch is.APIVersion + " " + is.Kind {
		case "v1 Namespace":
			into = &core.Namespace{}
		case "v1 ConfigMap":
			into = &core.ConfigMap{}
		case "v1 Service":
			into = &core.Service{}
		case "v1 Pod":
			into = &core.Pod{}
		case "apps/v1 StatefulSet":
			into = &apps.StatefulSet{}
		case "policy/v1 PodDisruptionBudget":
			into = &policy.PodDisruptionBudget{}
		case "networking.k8s.io/v1 NetworkPolicy":
			into = &networking.NetworkPolicy{}
		default:
			return n, fmt.Errorf("%s %s is not expected here", is.APIVersion, is.Kind)
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			return n, fmt.Errorf("%s: %w", is.Kind, err)
		}
		n++
	}
	return n, nil
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// changed replaces the first old by another text, and fails where there is none.
func changed(t *testing.T, text []byte, old, other string) []byte {
	t.Helper()
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("no %q in\n%s", old, text)
	}
	return bytes.Replace(text, []byte(old), []byte(other), 1)
}

func TestCompose(t *testing.T) {
	text := read(t, "compose.yaml")
	if err := checkCompose(text); err != nil {
		t.Fatal(err)
	}
	for old, other := range map[string]string{
		"healthcheck:":     "healtcheck:",
		"depends_on:":      "depends:",
		"service_healthy":  "healthy",
		"retries: 3":       "retries: [3]",
		"internal: true":   "internal: [yes]",
		"secrets:\n":       "secret:\n",
		"cap_drop: [ALL]":  "cap_drop: ALL",
		"services:\n":      "service:\n",
		"{file: ./secrets": "{path: ./secrets",
	} {
		if err := checkCompose(changed(t, text, old, other)); err == nil {
			t.Errorf("%q in place of %q is taken", other, old)
		}
	}
}

func TestManifests(t *testing.T) {
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, path := range files {
		if filepath.Base(path) == "kustomization.yaml" {
			continue // of kustomize; internal/cli looks at it
		}
		text := read(t, path)
		if n, err := checkManifests(text); err != nil || n != strings.Count(string(text), "\nkind: ")+strings.Count(string(text[:min(len(text), 6)]), "kind: ") {
			t.Errorf("%s: %d documents, %v", path, n, err)
		}
	}
	text := read(t, "kubernetes/node.yaml")
	for old, other := range map[string]string{
		"maxUnavailable: 1":                 "maxUnavailble: 1",
		"runAsUser: 1000":                   "runAsUser: agents",
		"terminationGracePeriodSeconds: 60": "terminationGracePeriod: 60",
		"policy/v1":                         "policy/v1beta1",
		"subPathExpr":                       "subPathExpression",
		"storage: 50Gi":                     "storage: 50 GiB",
		"replicas: 2":                       "replicas: 2\n  replicas: 3",
		"kind: StatefulSet":                 "kind: Statefulset",
	} {
		if _, err := checkManifests(changed(t, text, old, other)); err == nil {
			t.Errorf("%q in place of %q is taken", other, old)
		}
	}
}
