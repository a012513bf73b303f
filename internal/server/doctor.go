package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/certs"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/doctor"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/firewall"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/redis"
	"github.com/berth-host/berth/internal/stackid"
	"github.com/berth-host/berth/internal/store"
)

// Examine checks what a server of this configuration needs, whether it runs or not. It
// leaves nothing behind.
func Examine(ctx context.Context, cfg Config) (doctor.Report, error) {
	var err error
	if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return doctor.Report{}, fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	if err := cfg.checkFiles(); err != nil {
		return doctor.Report{}, err
	}
	e := &examined{cfg: cfg}
	limited, cancel := context.WithTimeout(ctx, engineAnswer)
	defer cancel()
	if e.engine, e.fault = docker.Open(limited, docker.Options{Log: slog.New(slog.DiscardHandler)}); e.fault == nil {
		defer e.engine.Close() // nothing was sent that could be lost
		e.info, e.fault = e.engine.Info(limited)
	}
	h := e.host()
	h.DNS, h.Name, h.Here = e.resolveInside, cfg.dnsName(), resolveHere
	h.Database = cfg.lookAtDatabase
	h.PublicURL = cfg.publicURL
	if cfg.RedisURL != redis.Embedded {
		h.Redis = cfg.askRedis
	}
	return doctor.Examine(ctx, h), nil
}

// examined is a machine that is examined.
type examined struct {
	cfg    Config
	engine *docker.Engine // nil if it does not answer
	info   docker.Info
	fault  error // why it does not answer
}

// host returns what the checks of doctor and of a running server ask in the same way.
func (e *examined) host() doctor.Host {
	h := doctor.Host{
		Engine:       e.describe,
		Unguarded:    e.cfg.AllowUnguarded,
		Floor:        e.cfg.DiskFloor,
		Disks:        e.disks,
		Synchronized: synchronized,
		Now:          time.Now,
		URL:          e.cfg.BaseURL.String(),
		NotPublic:    "only berthd doctor asks at the public URL",
		Firewall: func(ctx context.Context) (bool, error) {
			return firewall.New(firewall.Options{Bridges: e.engine.Bridges, Log: slog.New(slog.DiscardHandler)}).Check(ctx)
		},
		Images: e.missingImages,
	}
	h.Certificates, h.NoTLS = e.cfg.certificates()
	return h
}

// describe returns what the engine says of itself.
func (e *examined) describe(ctx context.Context) (doctor.Engine, error) {
	if e.fault != nil {
		return doctor.Engine{}, e.fault
	}
	d, err := e.engine.Describe(ctx)
	return doctor.Engine{
		Version: d.Version, API: d.API, Fault: e.cfg.checkEngine(e.info), Time: d.Time,
		Driver: d.Driver, Filesystem: d.Filesystem, NoFileType: d.NoFileType, Runc: d.Runc,
	}, err
}

// disks returns the free space of the data directory, or of the folder in which it will
// be, and of the engine's folder.
func (e *examined) disks() ([]disk.Space, error) {
	dir := e.cfg.DataDir
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	var all []disk.Space
	for _, dir := range []string{dir, e.info.RootDir} {
		if dir == "" {
			continue
		}
		space, err := disk.Free(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, space)
	}
	return all, nil
}

// synchronized reports whether the kernel's clock follows another one.
func synchronized() (bool, error) {
	state, err := unix.Adjtimex(&unix.Timex{})
	return state != unix.TIME_ERROR, err
}

// missingImages returns the base images that the engine does not have.
func (e *examined) missingImages(ctx context.Context) (missing []string, err error) {
	driver := docker.NewDriver(e.engine, e.info, e.cfg.driverOptions(""))
	for _, image := range images.All() {
		there, err := driver.HasImage(ctx, image.Ref())
		if err != nil {
			return nil, err
		}
		if !there {
			missing = append(missing, image.Name+"@"+image.Version)
		}
	}
	return missing, nil
}

// lookupTime is how long a look-up in a container may take, in seconds.
const lookupTime = "20"

// resolveInside resolves a name in a container on a network like those of stacks. It
// reports whether the look-up ran.
func (e *examined) resolveInside(ctx context.Context, name string) (ran bool, err error) {
	err = e.runInside(ctx, "timeout", lookupTime, "getent", "ahostsv4", name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, engine.ErrExit):
		return true, fmt.Errorf("%s does not resolve inside a container: %w", name, err)
	}
	return false, fmt.Errorf("the engine ran no container: %w", err)
}

// runInside runs a command in a container on a network like those of stacks.
func (e *examined) runInside(ctx context.Context, cmd ...string) error {
	driver := docker.NewDriver(e.engine, e.info, e.cfg.driverOptions("doctor-"+strings.ToLower(rand.Text())))
	image, err := anyImage(ctx, driver)
	if err != nil {
		return err
	}
	number, err := rand.Int(rand.Reader, big.NewInt(1<<20))
	if err != nil {
		return err
	}
	key := engine.Key{Stack: stackid.New(), Service: "doctor", Generation: 1}
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineAnswer)
		defer cancel()
		_ = driver.Discard(after, engine.Objects{Networks: []engine.Network{{Name: key.Network(), Key: key}}}) // an unused network does no harm
	}()
	if err := driver.Place(ctx, key, number.Int64()); err != nil {
		return err
	}
	return driver.Probe(ctx, engine.Spec{
		Name: key.Probe(), Key: key, Image: image, User: "65534:65534", Network: key.Network(), Pids: 64, Cmd: cmd,
	})
}

// anyImage returns an image of ours that the engine has.
func anyImage(ctx context.Context, driver engine.Driver) (string, error) {
	refs := []string{images.Debian}
	for _, image := range images.All() {
		refs = append(refs, image.Ref())
	}
	for _, ref := range refs {
		if there, err := driver.HasImage(ctx, ref); there || err != nil {
			return ref, err
		}
	}
	return "", doctor.Skipped("there is no base image to run; berthd images build makes them")
}

// dnsName returns a name that builds or the server itself have to resolve.
func (c *Config) dnsName() string {
	env, _ := c.buildEnv() // the file was checked
	for _, address := range urlHosts(env) {
		host, _, _ := net.SplitHostPort(address) // it was joined
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
			return host
		}
	}
	directory, err := url.Parse(c.ACMEDirectory)
	if err != nil {
		return c.BaseURL.Hostname()
	}
	return cmp.Or(directory.Hostname(), c.BaseURL.Hostname())
}

func resolveHere(ctx context.Context, name string) error {
	_, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
	return err
}

// askRedis returns an error unless the Redis of the configuration accepts writes.
func (c *Config) askRedis(ctx context.Context) error {
	client, err := redis.Open(ctx, c.RedisURL, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer client.Close() // what it wrote expires
	return client.Check(ctx)
}

// lookAtDatabase looks at the database and the key without opening them as a server does.
func (c *Config) lookAtDatabase(ctx context.Context) (string, error) {
	path, err := c.databasePath()
	if err != nil {
		return "", err
	}
	opts := store.Options{Path: path}
	if path == "" {
		opts.Postgres = c.DatabaseURL
	} else if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "there is none yet; the first start makes " + path, nil
	} else if err != nil {
		return "", fmt.Errorf("database %s: %w", path, err)
	}
	found, err := store.Check(ctx, opts)
	if err != nil {
		return "", err
	}
	if found.Version == 0 {
		return opts.Name() + " answers, and has no tables yet", nil
	}
	if err := c.checkKey(opts.Name(), found.Stacks > 0 || path != ""); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s is whole, with version %d of %d and %d stacks", opts.Name(), found.Version, found.Newest, found.Stacks), nil
}

// checkKey returns an error if the key cannot be read, or is missing beside a database that
// is in use. The operator makes BERTH_KEY_FILE, a server any other key.
func (c *Config) checkKey(database string, used bool) error {
	key := c.KeyPath()
	if c.KeyFile != "" || exists(key) {
		_, err := auth.ReadKey(key)
		return err
	}
	if used {
		return fmt.Errorf("%s is missing, but %s was written with it", key, database)
	}
	return nil
}

// certificates returns a function that looks at the certificates that clients get, or why
// there are none.
func (c *Config) certificates() (look func(context.Context) ([]doctor.Certificate, error), none string) {
	host := c.BaseURL.Hostname()
	switch {
	case c.TLS == tlsFiles:
		return func(context.Context) ([]doctor.Certificate, error) {
			end, err := certs.CheckFiles(c.TLSCert, c.TLSKey, []string{host, "doctor." + c.AppsDomain})
			return []doctor.Certificate{{Name: c.TLSCert, End: end}}, err
		}, ""
	case c.TLS == tlsACME && !c.InCluster(): // the nodes of a cluster keep them in the database
		return func(context.Context) (found []doctor.Certificate, err error) {
			ends, err := certs.Kept(datadir.Dir(c.DataDir).Certificates())
			for _, name := range slices.Sorted(maps.Keys(ends)) {
				found = append(found, doctor.Certificate{Name: name, End: ends[name]})
			}
			return found, err
		}, ""
	case c.BaseURL.Scheme != "https":
		return nil, "the public URL is plain HTTP"
	}
	return func(ctx context.Context) ([]doctor.Certificate, error) {
		end, err := certs.Presented(ctx, net.JoinHostPort(host, cmp.Or(c.BaseURL.Port(), "443")), host)
		if err != nil {
			return nil, doctor.Skipped("%s shows no certificate: %v", c.BaseURL, err)
		}
		return []doctor.Certificate{{Name: host, End: end}}, nil
	}, ""
}

// ready answers with the checks of this server, 503 if one fails. It leaves out what takes
// long.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	e := &examined{cfg: s.cfg, engine: s.engine, info: s.engineInfo}
	h := e.host()
	h.Database = func(ctx context.Context) (string, error) {
		counts, err := s.store.Counts(ctx)
		total := 0
		for _, n := range counts {
			total += n
		}
		return fmt.Sprintf("%s answers, with %d stacks", s.store.Name(), total), err
	}
	s.report(w, r, h)
}

// notReady returns a handler that answers in the shape of ready while the server waits for
// its engine or, after that, for its database.
func (s *Server) notReady(need string) http.HandlerFunc {
	e := &examined{cfg: s.cfg, engine: s.engine, info: s.engineInfo}
	reason := errors.New("the server waits for " + need)
	database := reason
	if s.engine == nil {
		e.fault = reason
		database = doctor.Skipped("the server opens its database after the engine")
	}
	h := e.host()
	h.Database = func(context.Context) (string, error) { return "", database }
	return func(w http.ResponseWriter, r *http.Request) { s.report(w, r, h) }
}

// report examines a host and writes the report.
func (s *Server) report(w http.ResponseWriter, r *http.Request, h doctor.Host) {
	if s.cfg.RedisURL != redis.Embedded {
		h.Redis = s.redis.Check
	}
	report := doctor.Examine(r.Context(), h)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !report.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	text, err := plainjson.MarshalLine(report)
	if err != nil {
		s.log.Error("readyz: the report is not JSON", "error", err)
	}
	_, _ = w.Write(text) // the caller may be gone
}
