// Package invariants says what must hold of an installation whatever happened to it:
// which events may follow which, and what a stack's row in the database implies for the
// engine and the disk. The tests of one server and of a cluster share it.
//
// Code in this package reads from a database and an engine that it is given, and changes
// nothing.
package invariants

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Query runs a query in an installation's database and calls each for every row.
type Query func(ctx context.Context, query string, each func(*sql.Rows) error) error

// In returns a Query in the database that a driver opens under a name. Whether a server runs
// does not matter.
func In(driver, name string) Query {
	return func(ctx context.Context, query string, each func(*sql.Rows) error) error {
		db, err := sql.Open(driver, name)
		if err != nil {
			return err
		}
		defer db.Close()
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// Row is a stack's row in the database.
type Row struct {
	ID         string
	Node       string // its owner; "" on one machine
	Epoch      int64  // counts the owners
	Status     stack.Status
	Claimed    bool
	Generation int
	Deploying  int
	Error      string
	Services   []stack.Service
	Source     stack.Source
	Layers     map[string]stack.Layer
	Data       map[string]int // number of the data volume, by service
}

// Occurrence is an event as the database has it.
type Occurrence struct {
	ID      int64
	StackID string
	Kind    stack.EventType
	Data    string
	At      time.Time
}

// Rows reads every stack, deleted ones included.
func Rows(ctx context.Context, query Query) ([]Row, error) {
	var all []Row
	err := query(ctx, "SELECT id, node, epoch, status, owner IS NOT NULL, generation, deploying, error, services, source, layers, data_volumes FROM stacks ORDER BY seq", func(rows *sql.Rows) error {
		var r Row
		var services, source, layers, data []byte
		if err := rows.Scan(&r.ID, &r.Node, &r.Epoch, &r.Status, &r.Claimed, &r.Generation, &r.Deploying, &r.Error, &services, &source, &layers, &data); err != nil {
			return err
		}
		err := errors.Join(json.Unmarshal(services, &r.Services), json.Unmarshal(source, &r.Source), json.Unmarshal(layers, &r.Layers), json.Unmarshal(data, &r.Data))
		all = append(all, r)
		return err
	})
	return all, err
}

// History reads every event, in order.
func History(ctx context.Context, query Query) ([]Occurrence, error) {
	var all []Occurrence
	err := query(ctx, "SELECT id, stack_id, type, data, created_at FROM events ORDER BY id", func(rows *sql.Rows) error {
		var o Occurrence
		var at int64
		if err := rows.Scan(&o.ID, &o.StackID, &o.Kind, &o.Data, &at); err != nil {
			return err
		}
		o.At = time.UnixMicro(at)
		all = append(all, o)
		return nil
	})
	return all, err
}

// Compare returns what an engine and its disk have that the rows do not explain, or lack
// that they imply. there is what they have, by stack.
func Compare(rows []Row, there map[string][]string) error {
	var errs []error
	rest := maps.Clone(there)
	for _, r := range rows {
		delete(rest, r.ID)
		if err := r.Explains(there[r.ID]); err != nil {
			errs = append(errs, fmt.Errorf("%s stack %s (generation %d): %w", r.Status, r.ID, r.Generation, err))
		}
	}
	for id, found := range rest {
		if len(found) > 0 {
			errs = append(errs, fmt.Errorf("there is %q of %q, which has no row", found, id))
		}
	}
	return errors.Join(errs...)
}

// Explains compares a settled stack with what there is of it.
func (r *Row) Explains(found []string) error {
	if r.Deploying != 0 || r.Status == stack.Building {
		return errors.New("it is being built or restored")
	}
	if (r.Status == stack.Failed) != (r.Error != "") && r.Status != stack.Expired && r.Status != stack.Deleted {
		return fmt.Errorf("its error is %q", r.Error)
	}
	for _, s := range r.Services {
		if r.Status == stack.Live && s.Status != stack.Running {
			return fmt.Errorf("service %s is %s", s.Spec.Name, s.Status)
		}
	}
	required, allowed := r.Implies()
	for _, name := range required {
		if !slices.Contains(found, name) {
			return fmt.Errorf("%s is missing among %q", name, found)
		}
	}
	for _, name := range found {
		if !slices.Contains(required, name) && !slices.ContainsFunc(allowed, func(pattern string) bool { return Matches(pattern, name) }) {
			return fmt.Errorf("%s should not be there, only %q and perhaps %q", name, required, allowed)
		}
	}
	return nil
}

// Matches reports whether a name matches a pattern of Implies.
func Matches(pattern, name string) bool {
	ok, err := filepath.Match(pattern, name)
	return ok && err == nil
}

// Implies names what a stack must have and, as patterns, what else it may have.
func (r *Row) Implies() (required, allowed []string) {
	built := !slices.ContainsFunc(r.Services, func(s stack.Service) bool { return s.Image == "" && s.Site == 0 })
	if r.Status == stack.Deleted {
		return nil, nil
	}
	allowed = []string{"file logs", "file *.filled"}
	if r.Source.Folder != "" {
		required = append(required, "file sources/"+r.Source.Folder)
	}
	if r.Status != stack.Expired {
		allowed = append(allowed, "volume *-data", "volume *-data-*", "volume *-cache", "volume *-cache-*")
		for _, layer := range r.Layers {
			allowed = append(allowed, r.Image(layer.Image), r.Image(layer.Source.Image))
		}
	}
	for _, s := range r.Services {
		generation, database := "g"+strconv.Itoa(r.Generation), s.Spec.Database() != nil
		if database {
			generation = "g0"
		}
		switch {
		case !built, database: // whose image is not the stack's
		case s.Site != 0:
			required = append(required, "file sites/"+s.Spec.Name+"/g"+strconv.Itoa(s.Site))
		default:
			required = append(required, r.Image(s.Image))
		}
		if s.Site == 0 && r.Status == stack.Live {
			container := s.Spec.Name + "-" + generation
			if s.Replaced > 0 {
				container += "-r" + strconv.Itoa(s.Replaced)
			}
			data := "volume " + s.Spec.Name + "-data"
			if number := r.Data[s.Spec.Name]; number > 0 {
				data += "-" + strconv.Itoa(number)
			}
			required = append(required, "running container "+container, data, "network "+generation)
		}
		if r.Status == stack.Live && r.Generation > 1 && s.Spec.Build != "" {
			allowed = append(allowed, "running container "+ReadyPrefix+"*-"+s.Spec.Name, r.ReadyNetwork())
		}
		if r.Status == stack.Expired {
			allowed = append(allowed, "image "+s.Spec.Name+":data")
		}
		if r.Status == stack.Failed {
			allowed = append(allowed, "image "+s.Spec.Name+":data") // of a restore that failed
		}
	}
	return required, allowed
}

// ReadyPrefix begins the names of containers that are there for a while for the builds of
// the next deploy, as inventory names them.
const ReadyPrefix = "berth-build-"

// ReadyNetwork is the network of such containers.
func (r *Row) ReadyNetwork() string { return "network g" + strconv.Itoa(r.Generation+1) }

// Image names an image of a service as inventory does.
func (r *Row) Image(ref string) string {
	return "image " + strings.TrimPrefix(ref, "berth/"+strings.TrimPrefix(r.ID, "stk_")+"-")
}
