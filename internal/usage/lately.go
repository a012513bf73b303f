package usage

import (
	"database/sql"
	"time"
)

// Minutes is for how many minutes Lately goes back.
const Minutes = 60

// lately has how many requests a stack had in each of the last minutes, at the place of the
// minute modulo their number.
type lately struct {
	last   int64 // minute, counted from 1970
	counts [Minutes]uint64
}

// add adds requests of a minute that is not before the last one by an hour.
func (l *lately) add(minute int64, n uint64) {
	for ; l.last < minute; l.last++ {
		l.counts[(l.last+1)%Minutes] = 0
	}
	l.counts[minute%Minutes] += n
}

// addLately adds requests of a stack at a time in Unix seconds. The caller holds turn.
func (r *Recorder) addLately(id string, at int64, n uint64) {
	minute := at / 60
	l := r.lately[id]
	if l == nil || l.last <= minute-Minutes {
		l = &lately{last: minute}
		r.lately[id] = l
	}
	if minute > l.last-Minutes {
		l.add(minute, n)
	}
}

// forgetLately forgets the stacks without a point in the last hour. The caller holds turn.
func (r *Recorder) forgetLately(now time.Time) {
	for id, l := range r.lately {
		if l.last <= now.Unix()/60-Minutes {
			delete(r.lately, id)
		}
	}
}

// loadLately reads the last hour from the database.
func (r *Recorder) loadLately(now time.Time) {
	r.turn.Lock()
	defer r.turn.Unlock()
	err := r.file.use(func(db *sql.DB) error {
		rows, err := db.QueryContext(r.ctx, "SELECT stack, at, traffic FROM points WHERE step = ? AND at > ?", Finest.seconds(), now.Add(-Minutes*time.Minute).Unix())
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := r.loadPoint(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err != nil && r.ctx.Err() == nil {
		r.cfg.Log.Warn("the last hour of the metrics was not read", "error", err)
	}
}

func (r *Recorder) loadPoint(rows *sql.Rows) error {
	var id string
	var p Point
	var traffic []byte
	if err := rows.Scan(&id, &p.At, &traffic); err != nil {
		return err
	}
	var err error
	if p.Traffic, err = unpackTraffic(traffic); err == nil {
		r.addLately(id, p.At, p.Requests())
	}
	return err
}

// Lately returns how many requests all services of stacks had in each of the last minutes,
// oldest first, by the stacks' ids. A stack of which nothing was measured is missing.
func (r *Recorder) Lately(ids []string) map[string][]uint64 {
	r.turn.Lock()
	defer r.turn.Unlock()
	now := time.Now().Unix() / 60
	all := map[string][]uint64{}
	for _, id := range ids {
		l := r.lately[id]
		if l == nil || l.last <= now-Minutes {
			continue
		}
		for minute := now - Minutes + 1; minute <= now; minute++ {
			n := l.counts[minute%Minutes]
			if minute > l.last {
				n = 0
			}
			all[id] = append(all[id], n)
		}
	}
	return all
}
