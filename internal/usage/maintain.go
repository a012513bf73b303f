package usage

import (
	"context"
	"database/sql"
	"time"
)

// maintain merges what has become whole steps by now, and removes the points of stacks that
// were deleted, and once an hour what is too old. At first, and once an hour, it looks at all
// services and stacks, and otherwise at those that have new points, or none any more.
func (r *Recorder) maintain(now time.Time) {
	some, hour := r.takeSeen(now)
	if hour || some != nil {
		r.file.write(func(ctx context.Context, tx *sql.Tx) error { return mergeAll(ctx, tx, some, now) })
	}
	r.dropGone(r.takeLeft())
	if hour {
		r.dropGone(r.recorded())
		r.file.write(func(ctx context.Context, tx *sql.Tx) error { return dropOld(ctx, tx, now) })
	}
}

// takeLeft returns the stacks without points since the last call, which may be deleted.
func (r *Recorder) takeLeft() (left []string) {
	r.turn.Lock()
	defer r.turn.Unlock()
	left, r.left = r.left, nil
	return left
}

// takeSeen returns the services whose points are to be merged by now, nil for none, or for all
// if an hour is over.
func (r *Recorder) takeSeen(now time.Time) (some map[series]bool, hour bool) {
	r.turn.Lock()
	defer r.turn.Unlock()
	before := r.merged
	if now.Truncate(steps[1].Length).Equal(before) {
		return nil, false
	}
	some, r.seen, r.merged = r.seen, map[series]bool{}, now.Truncate(steps[1].Length)
	if hour = !now.Truncate(steps[2].Length).Equal(before.Truncate(steps[2].Length)); hour {
		some = nil
	}
	return some, hour
}

// mergeAll makes the longer steps of services, or of all services for nil.
func mergeAll(ctx context.Context, tx *sql.Tx, some map[series]bool, now time.Time) error {
	if some == nil {
		var err error
		if some, err = allSeries(ctx, tx); err != nil {
			return err
		}
	}
	for s := range some {
		for i := 1; i < len(steps); i++ {
			if err := mergeSteps(ctx, tx, s, steps[i-1], steps[i], now); err != nil {
				return err
			}
		}
	}
	return nil
}

func allSeries(ctx context.Context, tx *sql.Tx) (map[series]bool, error) {
	rows, err := tx.QueryContext(ctx, "SELECT DISTINCT stack, service FROM points")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[series]bool{}
	for rows.Next() {
		var s series
		if err := rows.Scan(&s.stack, &s.service); err != nil {
			return nil, err
		}
		all[s] = true
	}
	return all, rows.Err()
}

// mergeSteps makes the longer steps of a service that have ended since the last one.
func mergeSteps(ctx context.Context, tx *sql.Tx, s series, short, long Step, now time.Time) error {
	var last sql.NullInt64
	err := tx.QueryRowContext(ctx, "SELECT max(at) FROM points WHERE stack = ? AND service = ? AND step = ?", s.stack, s.service, long.seconds()).Scan(&last)
	if err != nil {
		return err
	}
	from := int64(0)
	if last.Valid {
		from = last.Int64 + long.seconds()
	}
	points, err := readPoints(ctx, tx, s, short, from, now.Truncate(long.Length).Unix())
	if err != nil {
		return err
	}
	for _, p := range mergePoints(points, long) {
		if err := putPoint(ctx, tx, s, long, p); err != nil {
			return err
		}
	}
	return nil
}

// mergePoints merges points, which are in their order, into longer steps.
func mergePoints(points []*Point, long Step) (merged []*Point) {
	for _, p := range points {
		at := p.At - p.At%long.seconds()
		if n := len(merged); n > 0 && merged[n-1].At == at {
			merged[n-1].merge(p)
			continue
		}
		begun := *p
		begun.At = at
		merged = append(merged, &begun)
	}
	return merged
}

// dropOld removes the points that are too old.
func dropOld(ctx context.Context, tx *sql.Tx, now time.Time) error {
	for _, step := range steps {
		if _, err := tx.ExecContext(ctx, "DELETE FROM points WHERE step = ? AND at < ?", step.seconds(), now.Add(-step.Kept).Unix()); err != nil {
			return err
		}
	}
	return nil
}

// recorded returns the stacks that have points, as far as they can be read.
func (r *Recorder) recorded() (stacks []string) {
	_ = r.file.use(func(db *sql.DB) (err error) { // writing shows what is wrong
		stacks, err = texts(r.ctx, db, "SELECT DISTINCT stack FROM points")
		return err
	})
	return stacks
}

// dropGone removes the points of those stacks that were deleted.
func (r *Recorder) dropGone(stacks []string) {
	for _, id := range stacks {
		if gone, err := r.cfg.Gone(r.ctx, id); err == nil && gone {
			r.file.write(func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "DELETE FROM points WHERE stack = ?", id)
				return err
			})
		}
	}
}
