package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver named sqlite

	"github.com/berth-host/berth/internal/stack"
)

// row is a stack's row in the database.
type row struct {
	id         string
	status     stack.Status
	claimed    bool
	generation int
	deploying  int
	error      string
	services   []stack.Service
	source     stack.Source
	layers     map[string]stack.Layer
}

// occurrence is an event as the database has it.
type occurrence struct {
	id      int64
	stackID string
	kind    stack.EventType
	data    string
	at      time.Time
}

// query reads from the database, whether or not a server runs.
func (h *Host) query(ctx context.Context, query string, each func(*sql.Rows) error) error {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.dir, "berth.db")+"?_busy_timeout=10000&_query_only=1")
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

// rows reads every stack, deleted ones included.
func (h *Host) rows(ctx context.Context) ([]row, error) {
	var all []row
	err := h.query(ctx, "SELECT id, status, owner IS NOT NULL, generation, deploying, error, services, source, layers FROM stacks ORDER BY seq", func(rows *sql.Rows) error {
		var r row
		var services, source, layers []byte
		if err := rows.Scan(&r.id, &r.status, &r.claimed, &r.generation, &r.deploying, &r.error, &services, &source, &layers); err != nil {
			return err
		}
		err := errors.Join(json.Unmarshal(services, &r.services), json.Unmarshal(source, &r.source), json.Unmarshal(layers, &r.layers))
		all = append(all, r)
		return err
	})
	return all, err
}

// history reads every event, in order.
func (h *Host) history(t *testing.T) []occurrence {
	t.Helper()
	var all []occurrence
	require.NoError(t, h.query(context.Background(), "SELECT id, stack_id, type, data, created_at FROM events ORDER BY id", func(rows *sql.Rows) error {
		var o occurrence
		var at int64
		if err := rows.Scan(&o.id, &o.stackID, &o.kind, &o.data, &at); err != nil {
			return err
		}
		o.at = time.UnixMicro(at)
		all = append(all, o)
		return nil
	}))
	return all
}

// atOnce reads every stack and every event as they were at one moment: between
// two reads a stack's time may run out.
func (h *Host) atOnce(t *testing.T) (stacks []row, events []occurrence) {
	t.Helper()
	eventually(t, "the stacks stay as they are while their events are read", func() (err error) {
		if stacks, err = h.rows(t.Context()); err != nil {
			return err
		}
		events = h.history(t)
		after, err := h.rows(t.Context())
		if err == nil && !reflect.DeepEqual(stacks, after) {
			err = errors.New("one has changed")
		}
		return err
	})
	return stacks, events
}

// inOrder asserts that the installation is as its rows say: no build or restore
// is under way, what the engine and the disk have is exactly what each stack
// implies, and the history since before is one that docs/api.md allows.
func (h *Host) inOrder(t *testing.T, before []occurrence) {
	t.Helper()
	eventually(t, "everything is as the rows say", func() error { return h.asTheRowsSay(t.Context()) })
	rows, now := h.atOnce(t)
	require.GreaterOrEqual(t, len(now), len(before), "events are lost")
	require.Equal(t, before, now[:len(before)], "recorded events have changed")
	stacks := map[string]*chronicle{}
	for _, o := range now {
		if stacks[o.stackID] == nil {
			stacks[o.stackID] = &chronicle{}
		}
		require.NoError(t, stacks[o.stackID].add(o), "%v", kinds(now, o.stackID))
	}
	for _, r := range rows {
		require.NotNil(t, stacks[r.id], "stack %s has no history", r.id)
		require.Equal(t, r.status, stacks[r.id].status, "%v", kinds(now, r.id))
		require.Equal(t, r.claimed, stacks[r.id].claimed, "%v", kinds(now, r.id))
	}
}

// kinds are the types of one stack's events.
func kinds(all []occurrence, stackID string) []string {
	var found []string
	for _, o := range all {
		if o.stackID == stackID {
			found = append(found, string(o.kind))
		}
	}
	return found
}

// expires returns when the stack expires according to the event, the zero time if it does
// not say.
func (o occurrence) expires() time.Time {
	var data struct {
		At float64 `json:"expires_at"`
	}
	if json.Unmarshal([]byte(o.data), &data) != nil || data.At == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(data.At * 1e6)))
}

// chronicle follows the events of one stack and refuses what cannot come next.
type chronicle struct {
	status    stack.Status // "" before the first event
	expires   time.Time    // as far as events say
	deploying bool
	restoring bool
	claimed   bool
	noticed   bool
}

func (c *chronicle) add(o occurrence) error {
	if !c.allows(o.kind) {
		return fmt.Errorf("event %d of %s, %s, cannot come here: %+v", o.id, o.stackID, o.kind, *c)
	}
	if at := o.expires(); !at.IsZero() {
		c.expires = at
	}
	switch o.kind {
	case stack.EventCreated:
		c.status, c.deploying = stack.Building, true
		c.claimed = strings.Contains(o.data, `"anonymous":false`)
	case stack.EventRedeploying:
		c.deploying = true
		if c.status == stack.Failed {
			c.status = stack.Building
		}
	case stack.EventLive, stack.EventRestored:
		c.status, c.restoring = stack.Live, false
		c.deploying = c.deploying && o.kind == stack.EventRestored
	case stack.EventDeployFailed:
		c.deploying = false
	case stack.EventFailed:
		// A redeploy may go on that was under way when the served generation failed.
		c.deploying = c.deploying && c.status == stack.Live
		c.status, c.restoring = stack.Failed, false
	case stack.EventExpiring, stack.EventExtended:
		c.noticed = o.kind == stack.EventExpiring
	case stack.EventExpired:
		c.status, c.deploying = stack.Expired, false
	case stack.EventClaimed:
		c.claimed = true
		if c.status == stack.Expired || !c.expires.IsZero() && !o.at.Before(c.expires) {
			c.status, c.restoring, c.deploying = stack.Building, true, false
		}
	case stack.EventDeleted:
		c.status = stack.Deleted
	}
	return nil
}

// allows reports whether an event may come next (docs/api.md, "States and
// transitions").
func (c *chronicle) allows(kind stack.EventType) bool {
	live, building := c.status == stack.Live, c.status == stack.Building
	if c.status == stack.Deleted || (c.status == "") != (kind == stack.EventCreated) {
		return false
	}
	switch kind {
	case stack.EventCreated, stack.EventAgentRevoked:
		return true
	case stack.EventDeleted:
		return true
	case stack.EventRedeploying:
		return live && !c.deploying || c.status == stack.Failed
	case stack.EventBuilding, stack.EventLive:
		return c.deploying
	case stack.EventReady:
		return c.deploying || c.restoring
	case stack.EventDeployFailed:
		return c.deploying && live
	case stack.EventFailed:
		return live || building || c.deploying
	case stack.EventCrashed, stack.EventRestarted:
		return live
	case stack.EventRestored:
		return live || c.restoring
	case stack.EventExpiring:
		return !c.claimed && !c.noticed && c.status != stack.Expired
	case stack.EventExtended, stack.EventExpired:
		return !c.claimed && c.status != stack.Expired
	case stack.EventClaimed:
		return !c.claimed
	}
	return false
}

// asTheRowsSay compares the engine and the disk with the rows.
func (h *Host) asTheRowsSay(ctx context.Context) error {
	rows, err := h.rows(ctx)
	if err != nil {
		return err
	}
	there, err := h.inventory(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range rows {
		found := there[r.id]
		delete(there, r.id)
		if err := r.explains(found); err != nil {
			errs = append(errs, fmt.Errorf("%s stack %s (generation %d): %w", r.status, r.id, r.generation, err))
		}
	}
	for id, found := range there {
		if len(found) == 0 {
			continue
		}
		errs = append(errs, fmt.Errorf("there is %q of %q, which has no row", found, id))
	}
	return errors.Join(errs...)
}

// explains compares a settled stack with what there is of it.
func (r *row) explains(found []string) error {
	if r.deploying != 0 || r.status == stack.Building {
		return errors.New("it is being built or restored")
	}
	if (r.status == stack.Failed) != (r.error != "") && r.status != stack.Expired && r.status != stack.Deleted {
		return fmt.Errorf("its error is %q", r.error)
	}
	for _, s := range r.services {
		if r.status == stack.Live && s.Status != stack.Running {
			return fmt.Errorf("service %s is %s", s.Spec.Name, s.Status)
		}
	}
	required, allowed := r.implies()
	for _, name := range required {
		if !slices.Contains(found, name) {
			return fmt.Errorf("%s is missing among %q", name, found)
		}
	}
	for _, name := range found {
		if !slices.Contains(required, name) && !slices.ContainsFunc(allowed, func(pattern string) bool { return matches(pattern, name) }) {
			return fmt.Errorf("%s should not be there, only %q and perhaps %q", name, required, allowed)
		}
	}
	return nil
}

func matches(pattern, name string) bool {
	ok, err := filepath.Match(pattern, name)
	return ok && err == nil
}

// implies names what a stack must have and, as patterns, what else it may have.
func (r *row) implies() (required, allowed []string) {
	built := !slices.ContainsFunc(r.services, func(s stack.Service) bool { return s.Image == "" && s.Site == 0 })
	if r.status == stack.Deleted {
		return nil, nil
	}
	allowed = []string{"file logs", "file *.filled"}
	if r.source.Folder != "" {
		required = append(required, "file sources/"+r.source.Folder)
	}
	if r.status != stack.Expired {
		allowed = append(allowed, "volume *-data", "volume *-cache", "volume *-cache-*")
		for _, layer := range r.layers {
			allowed = append(allowed, r.image(layer.Image), r.image(layer.Source.Image))
		}
	}
	for _, s := range r.services {
		generation := "g" + strconv.Itoa(r.generation)
		switch {
		case !built:
		case s.Site != 0:
			required = append(required, "file sites/"+s.Spec.Name+"/g"+strconv.Itoa(s.Site))
		default:
			required = append(required, r.image(s.Image))
		}
		if s.Site == 0 && r.status == stack.Live {
			container := s.Spec.Name + "-" + generation
			if s.Replaced > 0 {
				container += "-r" + strconv.Itoa(s.Replaced)
			}
			required = append(required, "running container "+container, "volume "+s.Spec.Name+"-data", "network "+generation)
		}
		if r.status == stack.Live && r.generation > 1 && s.Spec.Build != "" {
			allowed = append(allowed, "running container "+readyPrefix+"*-"+s.Spec.Name, r.readyNetwork())
		}
		if r.status == stack.Expired {
			allowed = append(allowed, "image "+s.Spec.Name+":data")
		}
		if r.status == stack.Failed {
			allowed = append(allowed, "image "+s.Spec.Name+":data") // of a restore that failed
		}
	}
	return required, allowed
}

// readyPrefix begins the names of containers that are there for a while for the builds of
// the next deploy, as inventory names them.
const readyPrefix = "berth-build-"

// readyNetwork is the network of such containers.
func (r *row) readyNetwork() string { return "network g" + strconv.Itoa(r.generation+1) }

// image names an image of a service as inventory does.
func (r *row) image(ref string) string {
	return "image " + strings.TrimPrefix(ref, "berth/"+strings.TrimPrefix(r.id, "stk_")+"-")
}

// inventory lists what the engine and the disk have, by stack id: names without
// the stack's own part.
func (h *Host) inventory(ctx context.Context) (map[string][]string, error) {
	docker, err := h.docker()
	if err != nil {
		return nil, err
	}
	defer docker.Close()
	all := map[string][]string{}
	note := func(kind, name string, labels map[string]string) {
		id := labels["berth.stack"]
		hex := strings.TrimPrefix(id, "stk_")
		name = strings.NewReplacer("berth-"+hex, "", "berth/"+hex+"-", "", "/", "").Replace(name)
		all[id] = append(all[id], strings.TrimSpace(kind+" "+strings.TrimPrefix(name, "-")))
	}
	of := byLabel(h.instance)
	containers, err1 := docker.ContainerList(ctx, container.ListOptions{All: true, Filters: of})
	for _, c := range containers {
		note(c.State+" container", c.Names[0], c.Labels)
	}
	images, err2 := docker.ImageList(ctx, image.ListOptions{Filters: of})
	for _, i := range images {
		for _, tag := range i.RepoTags {
			note("image", tag, i.Labels)
		}
	}
	volumes, err3 := docker.VolumeList(ctx, volume.ListOptions{Filters: of})
	for _, v := range volumes.Volumes {
		note("volume", v.Name, v.Labels)
	}
	networks, err4 := docker.NetworkList(ctx, network.ListOptions{Filters: of})
	for _, n := range networks {
		note("network", n.Name, n.Labels)
	}
	return all, errors.Join(err1, err2, err3, err4, h.inventoryFiles(all))
}

// inventoryFiles adds the folders of the stacks, and unfinished uploads under
// the id "".
func (h *Host) inventoryFiles(all map[string][]string) error {
	var errs []error
	for _, pattern := range []string{"*/logs", "*/sources/*", "*/sites/*/*"} {
		found, err := filepath.Glob(filepath.Join(h.dir, "stacks", pattern))
		errs = append(errs, err)
		for _, path := range found {
			hex, rest, _ := strings.Cut(strings.TrimPrefix(path, filepath.Join(h.dir, "stacks")+"/"), "/")
			all["stk_"+hex] = append(all["stk_"+hex], "file "+rest)
		}
	}
	uploads, err := filepath.Glob(filepath.Join(h.dir, "uploads", "*"))
	all[""] = append(all[""], uploads...)
	return errors.Join(append(errs, err)...)
}
