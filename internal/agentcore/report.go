package agentcore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// maxReport is the longest report that is read, in bytes.
const maxReport = 64 << 10

// dimensions are what a report may judge.
func dimensions() []string {
	return []string{"quality", "adherence", "speed", "cost", "error_rate", "revision_count"}
}

// readReport reads a report from a file of the workspace dir. A symbolic link
// may lead to another file of it, and not out of it.
func readReport(dir, name string) (map[string]float64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	defer root.Close()
	// A pipe must not be waited for.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("read the report: %s is not a file", name), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxReport+1))
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return parseReport(text)
}

// parseReport reads one JSON object such as {"quality": 0.9}.
func parseReport(text []byte) (map[string]float64, error) {
	const want = `want one object such as {"quality": 0.9}`
	if len(text) > maxReport {
		return nil, fmt.Errorf("it has more than %d KiB; %s", maxReport>>10, want)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("it is empty; " + want)
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w; %s", err, want)
	}
	if len(values) == 0 {
		return nil, errors.New("it has no values; " + want)
	}
	report := make(map[string]float64, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(dimensions(), name) {
			return nil, fmt.Errorf("%q is not a dimension; want %s", name, strings.Join(dimensions(), ", "))
		}
		n, ok := values[name].(float64)
		if !ok || n < 0 || n > 1 {
			return nil, fmt.Errorf("%s is %v; want a number from 0 to 1", name, values[name])
		}
		report[name] = n
	}
	return report, nil
}
