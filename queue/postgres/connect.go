package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	stdnet "net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// Config says where the queue is and who this scheduler is.
type Config struct {
	Where Where
	// Folder is where the copy lies, with room for the whole queue.
	Folder string
	Log    zerolog.Logger
	Self   Member
	// Lease is how long a leader may be silent; 0: DefaultLease.
	Lease time.Duration
}

// DefaultLease has a standby take over 5 to 7 s after a leader's death.
const DefaultLease = 5 * time.Second

// MinLease is the shortest lease.
const MinLease = time.Second

// Database is the queue's database, seen from one scheduler.
type Database struct {
	cfg     Config
	pool    *pgxpool.Pool
	id      string // of the queue
	version int    // of its tables, when it was connected to
	newest  int    // that this program knows
}

// Where is a database, as ParseWhere reads it.
type Where struct {
	config *pgx.ConnConfig
	text   string
}

// String returns it without a password.
func (w Where) String() string { return w.text }

// The schema that the tables lie in, unless the address names a search_path.
const schema = "agentsched"

// oldestServer is the oldest PostgreSQL, as server_version_num has it.
const oldestServer = 140000

// ParseWhere reads an address of a database:
//
//	postgres://user@host:5432/name?sslmode=verify-full   a URL, which has no password
//	service=NAME                                         of the connection service file
//	file:/path                                           a file of mode 0600 with a URL, which may have one
//	env:NAME                                             a variable with such a URL
//
// A password comes from PGPASSWORD, from the password file, or with the URL from the
// file or the variable. What else the variables of libpq say is a default.
func ParseWhere(s string, getenv func(string) string) (Where, error) {
	given := s
	secret := false
	switch {
	case strings.HasPrefix(s, "file:"):
		text, err := readPrivate(strings.TrimPrefix(s, "file:"))
		if err != nil {
			return Where{}, fmt.Errorf("store %s: %w", given, err)
		}
		s, secret = text, true
	case strings.HasPrefix(s, "env:"):
		name := strings.TrimPrefix(s, "env:")
		if s = strings.TrimSpace(getenv(name)); s == "" {
			return Where{}, fmt.Errorf("store %s: the variable %s is not set", given, name)
		}
		secret = true
	}
	isURL := strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
	if !isURL && !strings.HasPrefix(s, "service=") {
		if secret {
			return Where{}, fmt.Errorf("store %s: what it holds is no address of a database, want postgres://user@host/name", given)
		}
		return Where{}, fmt.Errorf("store %q: want postgres://user@host/name, service=NAME, file:PATH or env:NAME", given)
	}
	cfg, err := pgx.ParseConfig(s)
	if err != nil {
		// The driver's error repeats the address, of which a part may be a password.
		return Where{}, fmt.Errorf("store %s: %w", hidden(given), withoutAddress(err))
	}
	if !secret && hasPassword(s) {
		return Where{}, fmt.Errorf("store %s: an address on a command line or in a configuration may not have a password, which others can read there; use PGPASSWORD, ~/.pgpass, file:PATH or env:NAME", hidden(given))
	}
	w := Where{config: cfg, text: given}
	if !secret {
		w.text = hidden(given)
	}
	return w, nil
}

// hasPassword reports whether an address has a password in it.
func hasPassword(s string) bool {
	rest, ok := strings.CutPrefix(s, "postgres://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "postgresql://")
	}
	if ok {
		authority, query, _ := strings.Cut(rest, "?")
		authority, _, _ = strings.Cut(authority, "/")
		if at := strings.LastIndexByte(authority, '@'); at >= 0 && strings.Contains(authority[:at], ":") {
			return true
		}
		return strings.HasPrefix(query, "password=") || strings.Contains(query, "&password=")
	}
	return strings.Contains(s, "password=")
}

// hidden returns an address without its password.
func hidden(s string) string {
	if !hasPassword(s) {
		return s
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return "service=…"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, _, _ := strings.Cut(rest[:at], ":")
		rest = user + ":***" + rest[at:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest
}

func withoutAddress(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return errors.New("it cannot be read as an address")
}

// readPrivate reads a small file that only its owner may read.
func readPrivate(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return "", fmt.Errorf("%s: want a file with one line", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is open to other users (mode %04o); run: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

//go:embed migrations/*.sql
var migrations embed.FS

// Connect connects to the database and makes what is missing in it. Errors:
// queue.ErrNewerVersion if an older program cannot work on it any more; queue.ErrUnavailable
// if it can be tried again.
func Connect(ctx context.Context, cfg Config) (*Database, error) {
	newest, err := sqlite.Newest()
	if err != nil {
		return nil, err
	}
	d, err := connect(ctx, cfg, newest)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", cfg.Where, unavailable(err))
	}
	return d, nil
}

func connect(ctx context.Context, cfg Config, newest int) (_ *Database, err error) {
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	pooled, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, withoutAddress(err)
	}
	pooled.ConnConfig = cfg.Where.connConfig()
	pooled.MaxConns, pooled.MinConns = 4, 0
	pooled.HealthCheckPeriod = time.Hour
	d := &Database{cfg: cfg, newest: newest}
	if d.pool, err = pgxpool.NewWithConfig(ctx, pooled); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.pool.Close()
		}
	}()
	if err := d.suits(ctx); err != nil {
		return nil, err
	}
	if err := d.bringUp(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// connConfig returns the settings of a connection.
func (w Where) connConfig() *pgx.ConnConfig {
	c := w.config.Copy()
	if c.RuntimeParams["search_path"] == "" {
		c.RuntimeParams["search_path"] = schema
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "agentsched"
	}
	c.RuntimeParams["timezone"] = "UTC"
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	return c
}

// suits looks whether the server can hold a queue.
func (d *Database) suits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var server int
	var encoding, fsync, pages string
	err := d.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_setting('fsync'),
		current_setting('full_page_writes')`).Scan(&server, &encoding, &fsync, &pages)
	switch {
	case err != nil:
		return err
	case server < oldestServer:
		return fmt.Errorf("the server is PostgreSQL %d, want %d or newer", server/10000, oldestServer/10000)
	case encoding != "UTF8":
		return fmt.Errorf("the database's encoding is %s, want UTF8", encoding)
	}
	if fsync != "on" || pages != "on" {
		d.cfg.Log.Warn().Str("fsync", fsync).Str("full_page_writes", pages).Msg("the database does not survive a crash of its host: what is acknowledged may be lost")
	}
	return nil
}

// bringUp makes the tables that are missing, one scheduler at a time.
func (d *Database) bringUp(ctx context.Context) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('agentsched'), hashtext(current_setting('search_path')))`); err != nil {
			return err
		}
		if err := d.layOut(ctx, tx); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT id, version FROM meta`).Scan(&d.id, &d.version); err != nil {
			return err
		}
		if d.version > 0 {
			return nil
		}
		tables, err := tablesOf(ctx, d.newest)
		if err != nil {
			return err
		}
		for _, t := range tables {
			if _, err := tx.Exec(ctx, t.create()); err != nil {
				return err
			}
		}
		d.version = d.newest
		_, err = tx.Exec(ctx, `INSERT INTO fence (id, last, epoch) VALUES (1, 0, 0)`)
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE meta SET version = $1`, d.newest)
		}
		return err
	})
}

// layOut brings the tables beside the queue's own up to date.
func (d *Database) layOut(ctx context.Context, tx pgx.Tx) error {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name
	if err != nil {
		return err
	}
	layout, compatible := 0, 0
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('meta') IS NOT NULL`).Scan(&there); err != nil {
		return err
	}
	if there {
		if err := tx.QueryRow(ctx, `SELECT layout, compatible FROM meta`).Scan(&layout, &compatible); err != nil {
			return err
		}
	} else if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+schema); err != nil {
		if code(err) != "42501" {
			return err
		}
		return fmt.Errorf("the role may not make the schema %s: create it for it, or grant it CREATE on the database: %w", schema, err)
	}
	if compatible > len(names) {
		return fmt.Errorf("the database has layout %d and this program knows layouts up to %d: %w", layout, len(names), queue.ErrNewerVersion)
	}
	for layout < len(names) {
		text, err := migrations.ReadFile(names[layout])
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, string(text)); err != nil {
			return fmt.Errorf("apply %s: %w", names[layout], err)
		}
		layout++
		if _, err := tx.Exec(ctx, `UPDATE meta SET layout = $1`, layout); err != nil {
			return err
		}
		d.cfg.Log.Debug().Str("migration", names[layout-1]).Msg("database migrated")
	}
	return nil
}

// tablesOf returns the queue's tables in a version.
func tablesOf(ctx context.Context, version int) (map[string]*table, error) {
	list, err := sqlite.Tables(ctx, version)
	if err != nil {
		return nil, err
	}
	return newTables(list)
}

// Where returns the address.
func (d *Database) Where() Where { return d.cfg.Where }

// Close closes the connections.
func (d *Database) Close() { d.pool.Close() }

// code returns the SQLSTATE of an error of the server's, "" if it is none.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// unavailable has an error wrap queue.ErrUnavailable if it is of a database that cannot be asked now and can be
// later, as while it is started, or the network to it is away. No wait mends a password that is wrong, a database
// that does not exist, or a certificate that is not trusted.
func unavailable(err error) error {
	away := false
	broken, isNet := errors.AsType[*stdnet.OpError](err)
	_, unknown := errors.AsType[*stdnet.DNSError](err) // a host's name may come with the host
	switch {
	case code(err) != "":
		away = passing(err)
	case isNet: // TLS has the alerts of both sides as errors of these operations
		away = broken.Op != "remote error" && broken.Op != "local error" && !errors.Is(err, syscall.EACCES)
	default:
		away = unknown || pgconn.Timeout(err) || slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, pgconn.ErrConnClosed},
			func(e error) bool { return errors.Is(err, e) })
	}
	if !away {
		return err
	}
	return &unavailableError{err}
}

// patient bounds what is read for a request by its queue.Patience.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if d := queue.Patience(ctx); d > 0 {
		return context.WithTimeout(ctx, d)
	}
	return ctx, func() {}
}

type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error   { return e.error }
func (*unavailableError) Is(err error) bool { return err == queue.ErrUnavailable } //nolint:errorlint // errors.Is calls it

// passing reports whether what has failed may succeed when it is tried again: the
// connection or the server has gone, or the server lacks something for now.
func passing(err error) bool {
	c := code(err)
	if c == "" {
		return err != nil && !errors.Is(err, errPatch)
	}
	switch c[:2] {
	case "08", "0A", "25", "26", "40", "53", "55", "57", "58":
		return true
	}
	return false
}
