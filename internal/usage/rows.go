package usage

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// add adds points of the finest steps. A point that is there is merged with its continuation:
// the server was started again, or the clock was set back.
func (f *file) add(points map[series]*Point) {
	f.write(func(ctx context.Context, tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, insertPoint+" ON CONFLICT DO NOTHING")
		if err != nil {
			return err
		}
		defer insert.Close()
		for s, p := range points {
			done, err := insert.ExecContext(ctx, p.row(s, Finest)...)
			if err != nil {
				return err
			}
			if n, err := done.RowsAffected(); err != nil || n == 1 {
				continue
			}
			if err := mergeInto(ctx, tx, s, p); err != nil {
				return err
			}
		}
		return nil
	})
}

const insertPoint = "INSERT INTO points (stack, service, step, at, traffic, cpu, measured, memory, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

// row returns the values of a point's row.
func (p *Point) row(s series, step Step) []any {
	return []any{
		s.stack, s.service, step.seconds(), p.At, packTraffic(&p.Traffic), p.CPU.Microseconds(), p.Over.Microseconds(), p.Memory, p.Data,
	}
}

// mergeInto merges a point with the one that is there.
func mergeInto(ctx context.Context, tx *sql.Tx, s series, p *Point) error {
	there, err := readPoints(ctx, tx, s, Finest, p.At, p.At+1)
	if err != nil || len(there) == 0 {
		return err
	}
	there[0].merge(p)
	return putPoint(ctx, tx, s, Finest, there[0])
}

// putPoint writes a point in place of the one that is there.
func putPoint(ctx context.Context, tx *sql.Tx, s series, step Step, p *Point) error {
	_, err := tx.ExecContext(ctx, "INSERT OR REPLACE"+insertPoint[len("INSERT"):], p.row(s, step)...)
	return err
}

// querier is a database, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readPoints returns the points of a service that begin between two times in Unix seconds,
// the second one excluded, in their order.
func readPoints(ctx context.Context, db querier, s series, step Step, from, to int64) (points []*Point, err error) {
	rows, err := db.QueryContext(ctx, `SELECT at, traffic, cpu, measured, memory, data FROM points
		WHERE stack = ? AND service = ? AND step = ? AND at >= ? AND at < ? ORDER BY at`, s.stack, s.service, step.seconds(), from, to)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scanPoint(rows)
		if err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	return points, rows.Err()
}

func scanPoint(rows *sql.Rows) (*Point, error) {
	var p Point
	var traffic []byte
	var cpu, over int64
	err := rows.Scan(&p.At, &traffic, &cpu, &over, &p.Memory, &p.Data)
	if err != nil {
		return nil, err
	}
	p.CPU, p.Over = time.Duration(cpu)*time.Microsecond, time.Duration(over)*time.Microsecond
	p.Traffic, err = unpackTraffic(traffic)
	return &p, err
}

// lastSize returns the last size of a service's data that was recorded.
func lastSize(ctx context.Context, db querier, s series) (size Size, known bool, err error) {
	for _, step := range steps {
		var at int64
		err := db.QueryRowContext(ctx, `SELECT at, data FROM points
			WHERE stack = ? AND service = ? AND step = ? AND data IS NOT NULL ORDER BY at DESC LIMIT 1`,
			s.stack, s.service, step.seconds()).Scan(&at, &size.Bytes)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		size.At = time.Unix(at, 0)
		return size, err == nil, err
	}
	return size, false, nil
}

// services returns the services of a stack that have points of a step between two times.
func services(ctx context.Context, db querier, stack string, step Step, from, to int64) (names []string, err error) {
	all, err := texts(ctx, db, "SELECT DISTINCT service FROM points WHERE stack = ?", stack)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		var n int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM points WHERE stack = ? AND service = ? AND step = ? AND at >= ? AND at < ? LIMIT 1)",
			stack, name, step.seconds(), from, to).Scan(&n)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// texts returns the first column of a query's rows.
func texts(ctx context.Context, db querier, query string, args ...any) (found []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		found = append(found, text)
	}
	return found, rows.Err()
}
