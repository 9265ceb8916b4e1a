package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/queue"
)

// knownCommand refuses the arguments of a command that has only others below it,
// and says which of them was meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(append(known, sub.Name()), sub.Aliases...)
		}
	}
	if near := nearest(args[0], known); near != "" {
		return usage(err, fmt.Sprintf("did you mean `%s %s`?", cmd.CommandPath(), near))
	}
	return usage(err)
}

// nearest returns the known word that was meant, or "".
func nearest(word string, known []string) string {
	if near := fields.Nearest(word, known); near != "" {
		return near
	}
	for _, k := range known {
		if len(word) >= 2 && strings.HasPrefix(k, strings.ToLower(word)) {
			return k
		}
	}
	return ""
}

// unknownFlag says which flag was meant.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		if plain := plainFlag(cmd, err); plain != nil {
			return plain
		}
		return err
	}
	var known []string
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	if name := unknown.GetSpecifiedShortnames(); name != "" {
		err = fmt.Errorf("unknown flag -%s", unknown.GetSpecifiedName())
	}
	if near := nearest(unknown.GetSpecifiedName(), known); near != "" && len(unknown.GetSpecifiedName()) > 1 {
		return usage(err, "did you mean --"+near+"?")
	}
	return usage(err, "the flag --help lists those that there are")
}

// isNotFound reports whether err says that there is no such job, here or elsewhere.
func isNotFound(err error) bool {
	var p *api.Problem
	return errors.Is(err, queue.ErrNotFound) || errors.As(err, &p) && p.Status == http.StatusNotFound
}

// maxNames is among how many of the newest jobs a name is looked for that was meant.
const maxNames = 1000

// meant adds to an error about a job that was not found the name that was meant.
func meant(ctx context.Context, s *peer, ref string, err error) error {
	if !isNotFound(err) {
		return err
	}
	list, listErr := s.Jobs(ctx, jobQuery{limit: maxNames})
	if listErr != nil {
		return err
	}
	return meantOf(list.Jobs, ref, err)
}

// meantOf adds to an error which of the jobs may have been meant.
func meantOf(list []api.Job, ref string, err error) error {
	var names []string
	for i := range list {
		names = append(names, string(list[i].Spec.Name))
	}
	near := nearest(ref, names)
	if near == "" || near == ref {
		return err
	}
	hint := fmt.Sprintf("did you mean %s?", near)
	if exit, ok := errors.AsType[*exitError](err); ok {
		return &exitError{code: exit.code, err: exit.err, hints: append([]string{hint}, exit.hints...)}
	}
	return &exitError{code: exitFailed, err: err, hints: []string{hint}}
}
