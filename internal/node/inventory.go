package node

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// Bounds of what a node may say of itself.
const (
	maxCores   = 64
	maxLabels  = 64
	maxWorkers = 64
	maxSlots   = 10_000
	maxText    = 500
	// MaxMirrors bounds Inventory.Mirrors: those that were used last.
	MaxMirrors = 500
)

var labelName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,62}[A-Za-z0-9])?$`)

// CheckLabel returns what is wrong with a label of a node.
func CheckLabel(name, value string) error {
	if !labelName.MatchString(name) {
		return fmt.Errorf("label %.80q must have 1 to 64 letters, digits and . _ / -, and begin and end with a letter or digit", name)
	}
	if value != "" && !labelName.MatchString(value) {
		return fmt.Errorf("label %s: the value %.80q must be empty, or have 1 to 64 letters, digits and . _ / -, and begin and end with a letter or digit", name, value)
	}
	return nil
}

// check returns what is wrong with an inventory.
func (v *Inventory) check() error {
	switch {
	case v.Slots < 1 || v.Slots > maxSlots:
		return fmt.Errorf("slots is %d; it must be 1 to %d", v.Slots, maxSlots)
	case v.CPUs < 0 || v.Memory < 0:
		return fmt.Errorf("cpus %d and memory %d must not be negative", v.CPUs, v.Memory)
	case len(v.Levels) > len(job.SandboxLevels()):
		return fmt.Errorf("there are %d sandbox levels; at most %d", len(v.Levels), len(job.SandboxLevels()))
	case len(v.Labels) > maxLabels || len(v.Workers) > maxWorkers:
		return fmt.Errorf("there are %d labels and %d workers; at most %d and %d", len(v.Labels), len(v.Workers), maxLabels, maxWorkers)
	}
	if len(v.Mirrors) > MaxMirrors || !slices.IsSorted(v.Mirrors) {
		return fmt.Errorf("there are %d mirrors; at most %d, sorted", len(v.Mirrors), MaxMirrors)
	}
	for name, value := range v.Labels {
		if err := CheckLabel(name, value); err != nil {
			return err
		}
	}
	for _, level := range append(slices.Clone(v.Levels), v.Sandbox) {
		if level != "" && !slices.Contains(job.SandboxLevels(), level) {
			return fmt.Errorf("sandbox level %.40q; it must be one of %v", level, job.SandboxLevels())
		}
	}
	texts := append([]string{v.Host, v.OS, v.Arch}, v.Mirrors...)
	for _, w := range v.Workers {
		texts = append(texts, string(w.Kind), w.Version, w.Why)
	}
	for _, text := range texts {
		if len(text) > maxText {
			return fmt.Errorf("the text %.40q… has %d bytes; at most %d", text, len(text), maxText)
		}
	}
	return nil
}
