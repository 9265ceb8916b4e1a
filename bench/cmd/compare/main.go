package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is what every case works with.
type bench struct {
	dir     string // empty at first, on a real disk
	rounds  int
	profile string // folder for CPU profiles of our side; "" none
	million string // state directory with 10⁶ queued jobs, once filled
}

// benchCase measures what belongs together.
type benchCase struct {
	name string
	run  func(context.Context, *bench) ([]row, error)
}

// allCases lists the cases in the order in which they run: memory leaves the
// big queue as it found it, claim eats from it.
func allCases() []benchCase {
	return []benchCase{{"enqueue", enqueueCase}, {"memory", memoryCase}, {"claim", claimCase}, {"postgres", postgresCase}, {"fleet", fleetCase}, {"share", shareCase}, {"nodes", nodesCase}, {"path", pathCase}, {"start", startCase}, {"gateway", gatewayCase}, {"live", liveCase}, {"talk", talkCase}}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == talkerArg {
		if err := talker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "talker:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	var b bench
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	parent := flags.String("dir", ".tmp", "folder to work in, created if missing; not in memory, since a sync is free there")
	picked := flags.String("rows", "enqueue,memory,claim,postgres,fleet,share,nodes,path,start,gateway,live,talk", "which cases to run")
	keep := flags.Bool("keep", false, "keep the files")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds of each measurement")
	flags.StringVar(&b.profile, "profile", "", "existing folder to write CPU profiles of our side to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names := strings.Split(*picked, ",")
	if err := known(names); err != nil {
		return err
	}
	if b.rounds < 1 {
		return errors.New("-rounds is at least 1")
	}
	if b.dir, err = workDir(*parent); err != nil {
		return err
	}
	if !*keep {
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	began := time.Now()
	if err := printMachine(os.Stdout, b.dir); err != nil {
		return err
	}
	var rows []row
	for _, c := range allCases() {
		if !slices.Contains(names, c.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s %s …\n", time.Since(began).Round(time.Second), c.name)
		list, err := c.run(ctx, &b)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, list...)
	}
	printRows(os.Stdout, rows)
	fmt.Printf("\n%d rounds each, %s in all\n", b.rounds, time.Since(began).Round(time.Second))
	return nil
}

func known(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(allCases(), func(c benchCase) bool { return c.name == name }) {
			return fmt.Errorf("-rows: no case is called %q", name)
		}
	}
	return nil
}

// workDir makes a new folder in parent, which must be on a disk.
func workDir(parent string) (string, error) {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return "", err
	}
	if err := onDisk(parent); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, "run-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711) // a server that does not run as root has a folder in it
}

// folder makes a folder for one side.
func (b *bench) folder(name string) (string, error) {
	path := filepath.Join(b.dir, name)
	return path, os.MkdirAll(path, 0o700)
}
