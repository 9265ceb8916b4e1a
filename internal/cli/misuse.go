package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groups are the headings of the root's help, each with its commands.
var groups = []struct {
	title    string
	commands []string
}{
	{"Jobs", []string{"run", "submit", "ls", "show", "logs", "wait", "cancel", "retry", "diff", "apply", "clean", "dlq"}},
	{"Workflows", []string{"plan", "checkpoint", "replay", "pipelines", "triggers", "simulate"}},
	{"People", []string{"attach", "tell", "fork", "interrupt", "takeover", "handback", "answer", "approvals", "approve", "reject", "allow", "grants", "agents", "evaluate", "reputation", "mcp"}},
	{"Operations", []string{
		"serve", "node", "status", "fleet", "nodes", "top", "ui", "pause", "resume", "restart-core", "upgrade", "workers", "tenants", "usage", "grant", "token", "ca", "audit",
		"crashes", "backup", "recover", "store",
	}},
	{"Host", []string{"doctor", "sandbox", "install-workers", "config", "demo", "version", "completion", "help"}},
}

// group puts the commands below their headings.
func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, cmd := range root.Commands() {
			for _, name := range g.commands {
				if cmd.Name() == name {
					cmd.GroupID = g.title
				}
			}
		}
	}
}

// plainArgs has a command say in words what is wrong with the number of its
// arguments, and how it is used.
func plainArgs(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var said *exitError
		_, operands, _ := strings.Cut(cmd.Use, " ")
		hint := fmt.Sprintf("usage: %s; %s --help explains it", cmd.UseLine(), cmd.CommandPath())
		switch {
		case err == nil && slices.Contains(args, ""):
			return usage(fmt.Errorf("%s takes %s, and an empty argument was given", cmd.CommandPath(), operands), hint)
		case err == nil || errors.As(err, &said):
			return err
		}
		for n := len(args) - 1; n >= 0; n-- {
			if check(cmd, args[:n]) != nil {
				continue
			}
			if n == 0 && operands == "" {
				return usage(fmt.Errorf("%s takes no arguments, and was given %q", cmd.CommandPath(), args[0]), hint)
			}
			return usage(fmt.Errorf("%s takes %s, and %q is too many", cmd.CommandPath(), operands, args[n]), hint)
		}
		given := "none was given"
		if len(args) > 0 {
			given = fmt.Sprintf("only %q was given", strings.Join(args, " "))
		}
		return usage(fmt.Errorf("%s needs %s, and %s", cmd.CommandPath(), operands, given), hint)
	}
}

// wants says, by the type of a flag, what its value must be.
func wants(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	case "duration":
		return "a length of time such as 90s or 30m"
	case "bool":
		return "true or false"
	}
	if name, _ := pflag.UnquoteUsage(f); name != "" {
		return "a value: " + name
	}
	return "a value"
}

// plainFlag says in words what is wrong with a flag; nil if the error is another one.
func plainFlag(cmd *cobra.Command, err error) error {
	hint := cmd.CommandPath() + " --help lists its flags"
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		f := bad.GetFlag()
		want := wants(f)
		if cause := bad.Unwrap(); f.Value.Type() != "int" && f.Value.Type() != "int64" && strings.HasPrefix(want, "a value") && cause != nil {
			return usage(fmt.Errorf("--%s %q: %w", f.Name, bad.GetValue(), cause), hint)
		}
		return usage(fmt.Errorf("invalid --%s %q: use %s", f.Name, bad.GetValue(), want), hint)
	}
	var none *pflag.ValueRequiredError
	if errors.As(err, &none) {
		return usage(fmt.Errorf("--%s has no value: give %s", none.GetFlag().Name, wants(none.GetFlag())), hint)
	}
	return nil
}

// plainExclusion says in words which flags exclude each other: cobra has a text for
// that, and no type.
func plainExclusion(err error) error {
	_, given, ok := strings.Cut(err.Error(), "none of the others can be; [")
	if !ok {
		return err
	}
	given, _, _ = strings.Cut(given, "]")
	flags := strings.Fields(given)
	return fmt.Errorf("--%s exclude each other: give one of them", strings.Join(flags, " and --"))
}
