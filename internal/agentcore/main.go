package agentcore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Exit codes of the agentcore program.
const (
	ExitOK      = 0 // the scheduler asked for the end
	ExitFailure = 1 // anything else that ended it, the scheduler's death included
	ExitUsage   = 2 // started by hand, or by a scheduler of another protocol
)

// Main runs the agentcore program on this process's standard streams and
// returns its exit code. The scheduler calls it too, when it re-executes
// itself as the core.
func Main(adapters map[string]worker.Adapter) int {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintln(os.Stderr, "agentcore: this program is started by the scheduler and speaks JSON-RPC on its standard input and output\nhint: run `scheduler run FILE`")
		return ExitUsage
	}
	proc.KeepDescriptors()
	if err := proc.AddOOMScore(proc.CoreOOMScore); err != nil {
		fmt.Fprintln(os.Stderr, "agentcore:", err)
	}
	if err := proc.Seclude(); err != nil {
		fmt.Fprintln(os.Stderr, "agentcore:", err)
	}
	tag := os.Getenv(job.RunTagVariable)
	instance, _, _ := strings.Cut(tag, "/")
	if err := proc.MarkDescendants(instance); err != nil {
		fmt.Fprintln(os.Stderr, "agentcore:", err)
	}
	in, out, err := TakeStdio()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentcore:", err)
		return ExitFailure
	}
	if os.Getenv("GOGC") == "" {
		// What lives in a core is a few megabytes, what a run leaves to be collected is as much after some dozen runs.
		debug.SetGCPercent(400)
	}
	secrets := redact.New(redact.FromEnviron(os.Environ())...)
	log := zerolog.New(secrets.Writer(os.Stderr)).With().Timestamp().Str("process", "agentcore").Int("pid", os.Getpid()).Logger()
	if level, err := zerolog.ParseLevel(os.Getenv("AGENTSCHED_LOG")); err == nil && level != zerolog.NoLevel {
		log = log.Level(level)
	} else {
		log = log.Level(zerolog.InfoLevel)
	}
	// The terminal's SIGINT is for the scheduler, which then tells us. And when
	// the scheduler is dead, writing to the log must fail, not kill: SIGPIPE on
	// descriptor 2 would end this process before it has stopped its workers.
	// Caught, not ignored: workers would inherit an ignored SIGINT.
	unwanted := make(chan os.Signal, 1)
	signal.Notify(unwanted, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(unwanted)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		log.Warn().Err(err).Msg("the caches of new tenants begin empty")
	}
	core := New(Config{
		Self: self, Fuse: fuseProgram, Tag: tag,
		In: in, Out: out, Log: log, Version: Version(), Adapters: adapters,
		Environ: os.Environ(), Lookup: os.LookupEnv,
		NoCgroup: os.Getenv("AGENTSCHED_NO_CGROUP") != "",
	})
	switch err := core.Run(ctx); {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrVersion):
		log.Error().Err(err).Msg("core ends")
		return ExitUsage
	default:
		log.Error().Err(err).Msg("core ends")
		return ExitFailure
	}
}
