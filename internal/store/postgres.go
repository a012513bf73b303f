package store

import (
	"context"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/berth-host/berth/internal/pause"
)

// How long something may last at a database of PostgreSQL. A call fails after
// callPatience, whatever it waits for; before that the server has given up the statement
// itself, and has ended the transaction of a writer that froze, so that the others go on.
const (
	callPatience     = 13 * time.Second
	statementTimeout = 12 * time.Second
	idleWriter       = 10 * time.Second
	connectTimeout   = 5 * time.Second
	retryListen      = time.Second
	listenPatience   = 5 * time.Second
	lockPatience     = 2 * time.Second
)

// leastVersion is the oldest PostgreSQL that works, as server_version_num.
const leastVersion = 150_000

// The advisory locks of a database. A transaction that writes holds the first, so that
// the ids of events become visible in their order; an open store holds the second, shared,
// by its write connection, and who copies all rows holds it alone; whoever changes the tables
// holds the third.
const (
	lockWriters = 0x6265727468_01
	lockServers = 0x6265727468_02
	lockTables  = 0x6265727468_03
)

// channel carries the ids of the stacks that a commit touched; triggers notify it.
const channel = "berth"

// postgres is a database of PostgreSQL. Other stores may have it open at the same time,
// on this machine or others.
type postgres struct {
	config *pgx.ConnConfig
	newer  bool          // see Options
	writer atomic.Uint32 // process id of the write connection, whose notifications are our own
}

// CheckPostgres checks the address of a database of PostgreSQL. A server on another
// machine must prove who it is, unless the address says that it need not. The error has
// no password.
func CheckPostgres(address string) error {
	config, err := parsePostgres(address)
	if err != nil {
		return err
	}
	mode := os.Getenv("PGSSLMODE")
	if u, err := url.Parse(address); err == nil && u.Query().Has("sslmode") {
		mode = u.Query().Get("sslmode")
	}
	if mode == "verify-full" || mode == "disable" {
		return nil
	}
	hosts := []string{config.Host}
	for _, other := range config.Fallbacks {
		hosts = append(hosts, other.Host)
	}
	for _, host := range hosts {
		if !isLocal(host) {
			return fmt.Errorf("%s is on another machine, so its address needs sslmode=verify-full (with sslrootcert for an authority of your own), or sslmode=disable if the network between is safe", host)
		}
	}
	return nil
}

// isLocal reports whether a host of PostgreSQL is this machine.
func isLocal(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || err == nil && address.IsLoopback()
}

// parsePostgres parses an address. The error does not quote it.
func parsePostgres(address string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		reason := ""
		_, unreadable := url.Parse(address)
		if cause := errors.Unwrap(err); cause != nil && unreadable == nil { // else the cause quotes it
			reason = " (" + cause.Error() + ")"
		}
		return nil, fmt.Errorf("not an address of PostgreSQL%s; write one like postgres://berth@db.example.com/berth?sslmode=verify-full", reason)
	}
	return config, nil
}

// newPostgres returns the database of an address, with how long its connections wait.
func newPostgres(address string, newer bool) (*postgres, error) {
	config, err := parsePostgres(address)
	if err != nil {
		return nil, err
	}
	config.ConnectTimeout = connectTimeout
	config.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}).DialContext
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "berthd"
	}
	return &postgres{config: config, newer: newer}, nil
}

func (p *postgres) name() string {
	u := url.URL{Scheme: "postgres", User: url.User(p.config.User), Path: "/" + p.config.Database}
	if strings.HasPrefix(p.config.Host, "/") || strings.HasPrefix(p.config.Host, "@") {
		u.RawQuery = "host=" + p.config.Host
	} else {
		u.Host = net.JoinHostPort(p.config.Host, strconv.Itoa(int(p.config.Port)))
	}
	return u.String()
}

func (p *postgres) patience() time.Duration { return callPatience }

func (p *postgres) email() string { return "lower(email)" }

func (p *postgres) clock() string {
	return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
}

// beside is a pool of one connection, opened when it is used.
func (p *postgres) beside() *sql.DB { return p.pool(1, nil, nil) }

func (p *postgres) open(ctx context.Context, log *slog.Logger) (write, read *sql.DB, err error) {
	if err := p.migrate(ctx, log); err != nil {
		return nil, nil, err
	}
	write = p.pool(1, nil, func(ctx context.Context, conn *pgx.Conn) error {
		p.writer.Store(conn.PgConn().PID())
		return lockShared(ctx, conn)
	})
	read = p.pool(readConnections, map[string]string{"default_transaction_read_only": "on"}, nil)
	return write, read, write.PingContext(ctx)
}

// migrate brings the tables up to date. One store at a time does so.
func (p *postgres) migrate(ctx context.Context, log *slog.Logger) error {
	db := stdlib.OpenDB(*p.config)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		err = fmt.Errorf("%w; if that is an authority of your own, name its certificate with sslrootcert in the address", err)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := checkVersion(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", lockTables); err != nil {
		return err
	}
	return migrate(ctx, db, goose.DialectPostgres, p.folder(), p.newer, log) // the end of the connection unlocks
}

// checkVersion refuses a server that is too old.
func checkVersion(ctx context.Context, conn *sql.Conn) error {
	var version string
	var number int
	err := conn.QueryRowContext(ctx, "SELECT current_setting('server_version'), current_setting('server_version_num')::int").Scan(&version, &number)
	if err != nil {
		return err
	}
	return tooOld(version, number)
}

// tooOld returns an error for a server_version_num that does not suffice.
func tooOld(version string, number int) error {
	if number >= leastVersion {
		return nil
	}
	return fmt.Errorf("it is PostgreSQL %s, and Berth needs 15 or newer", version)
}

// pool returns a pool of connections with parameters of their sessions. A connection that
// connected returns an error for is not used; connected may be nil.
func (p *postgres) pool(connections int, params map[string]string, connected func(context.Context, *pgx.Conn) error) *sql.DB {
	config := p.config.Copy()
	for name, limit := range map[string]time.Duration{
		"statement_timeout":                   statementTimeout,
		"idle_in_transaction_session_timeout": idleWriter,
		"tcp_user_timeout":                    idleWriter,
	} {
		config.RuntimeParams[name] = strconv.FormatInt(limit.Milliseconds(), 10)
	}
	for name, value := range params {
		config.RuntimeParams[name] = value
	}
	var options []stdlib.OptionOpenDB
	if connected != nil {
		options = append(options, stdlib.OptionAfterConnect(connected))
	}
	db := sql.OpenDB(connector{stdlib.GetConnector(*config, options...), config})
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

func (p *postgres) reserve(ctx context.Context, tx *sql.Tx, table, column string, last int64) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT setval('%s_%s_seq', ?) WHERE %s < ?", table, column, p.counter(table, column)), last, last)
	return err
}

func (p *postgres) counter(table, column string) string {
	return fmt.Sprintf("(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM %s_%s_seq)", table, column)
}

// quiet takes exclusively the lock that open stores share.
func (p *postgres) quiet(ctx context.Context) (*sql.DB, error) {
	db := p.pool(1, map[string]string{"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}, lockAlone)
	conn, err := db.Conn(ctx)
	if err == nil {
		err = errors.Join(checkVersion(ctx, conn), conn.Close())
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// lockAlone returns errInUse while another store of the database is open.
func lockAlone(ctx context.Context, conn *pgx.Conn) error {
	return tryLock(ctx, conn, "pg_try_advisory_lock", errInUse)
}

// lockShared returns ErrUnavailable while rows are copied from or to the database.
func lockShared(ctx context.Context, conn *pgx.Conn) error {
	return tryLock(ctx, conn, "pg_try_advisory_lock_shared", fmt.Errorf("%w while berthd migrate uses it", ErrUnavailable))
}

// tryLock takes the lock of the servers until the connection ends, or returns taken. It gives
// PostgreSQL the time to notice that another connection has ended.
func tryLock(ctx context.Context, conn *pgx.Conn, function string, taken error) error {
	for began := time.Now(); ; {
		got := false
		err := conn.QueryRow(ctx, "SELECT "+function+"($1)", lockServers).Scan(&got)
		if err != nil || got {
			return err
		}
		if time.Since(began) > lockPatience || !pause.For(ctx, lockPatience/20) {
			return taken
		}
	}
}

func (p *postgres) makeTables(ctx context.Context, _ *sql.DB, log *slog.Logger) error {
	return p.migrate(ctx, log)
}

func (p *postgres) folder() string { return "postgres" }

func (p *postgres) schema() string {
	return `SELECT c.table_name, c.column_name, c.data_type = 'boolean'
		FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND c.table_name <> 'goose_db_version'
		ORDER BY c.table_name, c.ordinal_position`
}

// cause takes what the driver says about its connection, and the time limit of a call, for
// a database that is not available.
func (p *postgres) cause(err error) error {
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok {
		return causeOf(failure.Code)
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err) // context.DeadlineExceeded is one
	ended := func(cause error) bool { return errors.Is(err, cause) }
	if connecting || network || pgconn.SafeToRetry(err) || slices.ContainsFunc(connectionEnds, ended) {
		return ErrUnavailable
	}
	return nil
}

// connectionEnds are the errors of a connection that ended.
var connectionEnds = []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn}

// causeOf returns what a code of PostgreSQL's, appendix A of its manual, means.
func causeOf(code string) error {
	switch {
	case code == "53100": // disk_full
		return syscall.ENOSPC
	case strings.HasPrefix(code, "08"), // the connection
		strings.HasPrefix(code, "53"), // too few resources, such as connections
		strings.HasPrefix(code, "57"), // shutting down, starting, or a statement took too long
		code == "25006",               // read-only: this server has become a standby
		code == "25P03",               // the transaction was idle for too long
		code == "55P03":               // a lock did not come
		return ErrUnavailable
	}
	return nil
}

// follow listens until ctx ends. What was committed while it did not, it does not know, so
// any stack may have changed.
func (p *postgres) follow(ctx context.Context, changed func(stackID string)) {
	for {
		_ = p.listen(ctx, changed) // a pool that works is what reports a database that does not
		if !pause.For(ctx, retryListen) {
			return
		}
	}
}

// listen follows on one connection, until it fails.
func (p *postgres) listen(ctx context.Context, changed func(stackID string)) error {
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // of a connection that nothing was written on
	}()
	if err := within(ctx, listenPatience, func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "LISTEN "+channel)
		return err
	}); err != nil {
		return err
	}
	changed("")
	for {
		if err := p.hear(ctx, conn, changed); err != nil {
			return err
		}
	}
}

// hear waits for one notification, or long enough to ask whether the connection works.
func (p *postgres) hear(ctx context.Context, conn *pgx.Conn, changed func(stackID string)) error {
	var heard *pgconn.Notification
	err := within(ctx, listenPatience, func(ctx context.Context) (err error) {
		heard, err = conn.WaitForNotification(ctx)
		return err
	})
	switch {
	case err == nil && heard.PID != p.writer.Load():
		changed(heard.Payload)
		return nil
	case err == nil || ctx.Err() != nil || !pgconn.Timeout(err):
		return err
	}
	return within(ctx, listenPatience, conn.Ping)
}

// within calls do with a context that ends after limit.
func within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}
