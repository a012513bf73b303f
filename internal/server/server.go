package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/api"
	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/backup"
	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/certs"
	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/depot"
	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/domain"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/firewall"
	"github.com/berth-host/berth/internal/health"
	"github.com/berth-host/berth/internal/mail"
	"github.com/berth-host/berth/internal/metrics"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/redis"
	"github.com/berth-host/berth/internal/registry"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/supervisor"
	"github.com/berth-host/berth/internal/usage"
	"github.com/berth-host/berth/internal/webhook"
	"github.com/berth-host/berth/internal/wire"
)

// Server is one running installation.
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics.Metrics
	manager *manager // of services: systemd, or none

	databaseFile string // of SQLite; "" with PostgreSQL
	lock         *os.File
	store        *store.Store
	redis        *redis.Client
	webhooks     *webhook.Dispatcher
	mails        *mail.Sender // nil unless mails are sent
	engine       *docker.Engine
	driver       engine.Driver
	engineInfo   docker.Info // as the engine described itself when it was opened
	installation string      // id of the installation of a cluster; "" on one machine
	cluster      *cluster.Membership
	endCluster   func() // nil on one machine, as are the two before and after
	peerCerts    *cluster.Certificates
	ousted       context.Context // ends once this node is not this server's any more
	oust         context.CancelCauseFunc
	registry     *registry.Registry // nil without one
	depot        *depot.Depot       // nil without a registry
	endDepot     func()             // nil unless it has begun
	builder      *builder.Builder
	firewall     *firewall.Firewall
	admission    *admission.Gate
	supervisor   *supervisor.Supervisor
	usage        *usage.Recorder
	accounts     *account.Accounts
	links        *account.Mails // nil unless mails are sent
	codes        *redis.Window  // of claims, in the API and on the pages
	api          *api.API
	pages        *appserver.Server
	documents    *docs.Documents
	routes       *proxy.Routes
	edge         *edge.Server
	acme         *certs.ACME // nil unless BERTH_TLS=acme
	domains      *domain.Domains
	endDomains   func()                         // nil unless their checks have begun
	inner        *fasthttputil.InmemoryListener // of the API
	innerPages   *fasthttputil.InmemoryListener
	listener     net.Listener
	admin        *http.Server // of the operators

	certificates  *tls.Config  // of the listener; nil for plain HTTP
	adminListener net.Listener // nil without an admin address
	plainListener net.Listener // nil without an address for plain HTTP
	plain         *edge.PlainServer
	conns         *edge.Conns // of both listeners

	governing governing // by the operator, at the socket
	backingUp atomic.Bool

	place   *place   // that this server takes; nil at a start
	left    *state   // what the server before left; nil at a start
	relayed *relayed // nil at a start
	gate    *gate    // before what answers for the base URL's host
	reloads reloads

	others  *others     // nodes of the cluster; nil on one machine
	leaving atomic.Bool // a balancer should ask another node
	moving  *moving     // stacks that move away, since an operator wants that
}

// newServer opens everything that the server needs and takes over the stacks of the previous
// server. If it succeeds, the address is bound; Run serves it. from is the place of a server
// that runs and that the new one takes; nil for none.
func newServer(ctx context.Context, cfg Config, log *slog.Logger, from *place) (*Server, error) {
	s := &Server{cfg: cfg, log: log, place: from, metrics: metrics.New(), manager: newManager(), routes: &proxy.Routes{}, moving: newMoving()}
	s.ousted, s.oust = context.WithCancelCause(context.Background())
	err := s.open(ctx)
	if from != nil {
		closeFiles(from.files) // it has copies: an address stays bound until all are closed
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// open changes nothing permanently before it has checked the configuration and bound
// the addresses, and takes over no stack before it knows that the database is the
// stacks' own.
func (s *Server) open(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.takePlace(ctx); err != nil {
		return err
	}
	if err := s.lockData(); err != nil {
		return err
	}
	if err := s.bind(); err != nil {
		return err
	}
	if err := s.awaitEngine(ctx); err != nil {
		return err
	}
	key, err := s.awaitStore(ctx)
	if err != nil {
		return err
	}
	if err := s.openRegistry(ctx); err != nil { // before a new node is one
		return err
	}
	if err := s.awaitDatabase(ctx, func(ctx context.Context) error { return s.openCluster(ctx, key) }); err != nil {
		return err
	}
	if err := s.openPeers(ctx); err != nil {
		return err
	}
	if err := s.openSupervisor(ctx, key); err != nil {
		return err
	}
	started := make(chan struct{})
	s.startCluster(started)
	documents := make(chan error, 1)
	go func() { documents <- s.openDocuments() }() // takes as long as to ask the engine
	if err := s.awaitDatabase(ctx, s.checkAround); err != nil {
		return err
	}
	if err := s.openWebhooks(ctx); err != nil {
		return err
	}
	s.openUsage()
	s.openAccounts(key)
	if err := s.openDomains(ctx, key); err != nil {
		return err
	}
	s.openMails()
	s.openAPI(key)
	if err := <-documents; err != nil {
		return err
	}
	s.openPages(key)
	s.openAdmin()
	if err := s.openOperator(ctx); err != nil {
		return err
	}
	s.conns = edge.NewConns(edge.ConnsConfig{
		Limit: s.cfg.ConnsPerClient, Trusted: s.cfg.TrustedProxies, Network: stack.NetworkOf, Observe: s.metrics.OverLimit,
	})
	s.openPlain()
	if err := s.openEdge(key); err != nil {
		return err
	}
	// Last, since from now on there is other work to do besides.
	if err := s.awaitDatabase(ctx, s.supervisor.Start); err != nil {
		return err
	}
	close(started)
	s.startDepot()
	s.usage.Start()
	return nil
}

// check checks the configuration, including the files and the engine that it names, and
// opens what leaves no trace. The engine is not open afterwards if it does not answer
// yet, or cannot.
func (s *Server) check(ctx context.Context) (err error) {
	if err := s.cfg.checkFiles(); err != nil {
		return err
	}
	if s.certificates, err = s.openTLS(); err != nil {
		return err
	}
	if err := s.tryEngine(ctx, engineAnswer); err != nil && !docker.MayPass(err) {
		return err
	}
	if s.redis, err = redis.Open(ctx, s.cfg.RedisURL, s.log); err != nil {
		return fmt.Errorf("BERTH_REDIS_URL: %w", err)
	}
	return nil
}

const (
	// engineAnswer is how long an engine may take to answer the questions at start.
	engineAnswer = 10 * time.Second
	// engineRetry is the time after which an engine that did not answer, or could not
	// yet, is asked again.
	engineRetry = time.Second
)

// awaitEngine waits until the engine is open, since it may start after the server.
// Meanwhile requests are answered with 503.
func (s *Server) awaitEngine(ctx context.Context) error {
	for told := false; s.engine == nil; told = true {
		err := s.tryEngine(ctx, engineAnswer)
		if !docker.MayPass(err) {
			return err
		}
		if !told {
			s.log.Warn("no Docker engine is ready, and the server waits for one; start it, or set DOCKER_HOST to its address", "error", err)
			defer s.answerStarting("its Docker engine")()
		}
		if !pause.For(ctx, engineRetry) {
			return ctx.Err()
		}
	}
	return nil
}

// tryEngine opens the engine if it answers within the limit. An engine that accepts a
// connection and never answers is engine.ErrUnreachable, so that it is asked again.
func (s *Server) tryEngine(ctx context.Context, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.openEngine(limited)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w within %s: %w", engine.ErrUnreachable, limit, err)
	}
	return err
}

func (s *Server) openEngine(ctx context.Context) error {
	engine, err := docker.Open(ctx, docker.Options{Log: s.log, Observe: s.metrics.EngineCall})
	if err != nil {
		return fmt.Errorf("DOCKER_HOST must be the address of a Docker engine: %w", err)
	}
	info, err := engine.Info(ctx)
	if err == nil {
		err = s.cfg.checkEngine(info)
	}
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	s.engine, s.engineInfo = engine, info
	return nil
}

// locate makes the path of the data directory absolute, and finds the database.
func (s *Server) locate() (err error) {
	if s.cfg.DataDir, err = filepath.Abs(s.cfg.DataDir); err != nil {
		return fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	s.databaseFile, err = s.cfg.databasePath()
	return err
}

// lockData locks the data directory for as long as this server runs.
func (s *Server) lockData() (err error) {
	if err := s.locate(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	free, err := s.tryLock()
	if err == nil && !free {
		err = fmt.Errorf("another server uses the data directory %s; stop it, or set BERTH_DATA_DIR to another one", s.cfg.DataDir)
	}
	if err == nil && backup.Unfinished(s.cfg.DataDir) {
		err = fmt.Errorf("a restore into the data directory %s was cut off, so that not all is there; run berthd restore again", s.cfg.DataDir)
	}
	return err
}

// tryLock locks the data directory, and reports whether no other process has it locked.
func (s *Server) tryLock() (free bool, err error) {
	if s.place != nil && s.place.files[fileLock] != nil {
		s.lock, err = copyOf(s.place.files[fileLock], fileLock)
		return err == nil, err
	}
	if s.lock, err = os.OpenFile(s.dir().Lock(), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return false, fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	return syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
}

// openWebhooks must run before anything records an event, so that none is missed.
func (s *Server) openWebhooks(ctx context.Context) error {
	s.webhooks = webhook.New(s.webhookConfig(s.redis.Queue("webhooks")))
	return s.awaitDatabase(ctx, s.webhooks.Start)
}

func (s *Server) webhookConfig(queue webhook.Queue) webhook.Config {
	return webhook.Config{
		Node:    s.node(),
		Store:   s.store,
		Queue:   queue,
		Timeout: s.cfg.WebhookTimeout,
		Retries: s.cfg.WebhookRetries,
		Left:    s.beforeRetries(),
		Allow:   s.cfg.WebhookAllow,
		Pool:    s.cfg.NetworkPool,
		Log:     s.log,
		Observe: s.metrics.Delivery,
	}
}

// openSupervisor creates the supervisor without starting it.
func (s *Server) openSupervisor(ctx context.Context, key auth.Key) error {
	instance, err := s.instance(ctx)
	if err != nil {
		return err
	}
	s.driver = docker.NewDriver(s.engine, s.engineInfo, s.cfg.driverOptions(instance))
	if s.builder, err = newBuilder(s.cfg, s.driver, s.openDepot(), key.Layers(), s.metrics.Build, s.log); err != nil {
		return err
	}
	if s.admission, err = s.newAdmission(instance); err != nil {
		return err
	}
	s.supervisor = supervisor.New(s.withOthers(supervisor.Config{
		Store:          s.store,
		Engine:         s.driver,
		Builder:        s.builder,
		Routes:         s.routes,
		URLs:           s.urls(),
		Dir:            s.dir(),
		Admission:      s.admission,
		DiskFloor:      s.cfg.DiskFloor,
		DiskLimit:      stack.DiskLimit(s.cfg.StackDisk),
		Limits:         s.cfg.Limits,
		Quota:          s.quota(),
		CheckEvery:     s.cfg.SuperviseEvery,
		BuildTimeout:   s.cfg.BuildTimeout,
		Health:         health.Wait,
		HealthTimeout:  s.cfg.HealthTimeout,
		Drain:          s.cfg.Drain,
		ConnectTimeout: s.cfg.ProxyConnectTimeout,
		HeaderTimeout:  s.cfg.ProxyTimeout,
		Memory:         s.cfg.ServiceMemory,
		NanoCPUs:       int64(s.cfg.ServiceCPUs * 1e9),
		Pids:           s.cfg.ServicePids,
		LogMax:         s.cfg.LogMax,
		MaxData:        s.cfg.MaxData,
		OrphanGrace:    s.cfg.OrphanGrace,
		Before:         s.beforeStacks(),
		Log:            s.log,
	}))
	if s.others != nil {
		answerMoves(s.others.calls, s.supervisor.Receiver())
		s.others.calls.AnswerClaims(s.supervisor)
	}
	return nil
}

// checkAround checks what a server finds around it before it takes over stacks. That may take
// longer than a node's lease lasts. Before that takes time, it ends what other nodes run by now.
func (s *Server) checkAround(ctx context.Context) error {
	if err := s.checkData(ctx); err != nil {
		return err
	}
	if s.cluster != nil {
		if err := s.supervisor.StopForeign(ctx); err != nil {
			return err
		}
	}
	s.checkRegistry(ctx)
	return s.probeShut(ctx)
}

// newAdmission returns the gate of the installation with the id instance.
func (s *Server) newAdmission(instance string) (*admission.Gate, error) {
	build, err := s.cfg.buildHosts()
	if err != nil {
		return nil, err
	}
	s.firewall = firewall.New(firewall.Options{Open: s.cfg.NetworkAllow, Build: build, Pool: s.cfg.NetworkPool, Shut: s.shutHosts, Nodes: s.nodeHosts, Bridges: s.engine.Bridges, Log: s.log})
	return admission.New(admission.Config{
		Instance:       instance,
		Stacks:         s.store.All,
		Firewall:       s.firewall,
		AllowUnguarded: s.cfg.AllowUnguarded,
		DiskFloor:      s.cfg.DiskFloor,
		Disks: []admission.Disk{
			// The first, since the other is often the same disk, which is then no longer short.
			{Free: s.driver.Room, Reclaim: func(enough func() bool) { s.supervisor.Reclaim(enough) }},
			{Free: func() (disk.Space, error) { return disk.Free(s.cfg.DataDir) }},
		},
		Log: s.log,
	}), nil
}

func (s *Server) dir() datadir.Dir { return datadir.Dir(s.cfg.DataDir) }

// checkData refuses a database that knows nothing of the data that the engine keeps for
// this installation: it is empty, old or another server's. It also refuses a key that
// the database was not written with.
func (s *Server) checkData(ctx context.Context) error {
	ids, err := s.supervisor.ForeignData(ctx)
	if errors.Is(err, auth.ErrSealed) {
		return fmt.Errorf("the key %s does not decrypt the sealed values in the database %s; restore the key that belongs to it from a backup", s.keyFile(), s.store.Name())
	}
	if err != nil || len(ids) == 0 || s.cfg.AllowUnknownData {
		return err
	}
	return fmt.Errorf("the Docker engine has volumes or snapshots of this installation, but the database %s knows none of their stacks (%d found); "+
		"restore the right database, or start with --allow-unknown-data=true (BERTH_ALLOW_UNKNOWN_DATA) to leave them as they are", s.store.Name(), len(ids))
}

// instance returns the id of this installation, created the first time: it is on every
// object in the engine, so that two installations never touch each other's. If it is
// missing beside a database with stacks, it is not created again: nothing of theirs
// would be found.
func (s *Server) instance(ctx context.Context) (string, error) {
	if s.installation != "" {
		return s.installation, nil
	}
	path := s.dir().Instance()
	text, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the installation's id: %w", err)
	}
	counts, err := s.store.Counts(ctx)
	if err != nil {
		return "", err
	}
	if len(counts) > 0 {
		return "", fmt.Errorf("%s is missing, but the containers, images and volumes of the stacks in the database are labelled with the id in it; restore the file from a backup", path)
	}
	id := newInstance()
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the installation's id: %w", err)
	}
	return id, nil
}

func newInstance() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// quota returns what each account may have.
func (s *Server) quota() stack.Quota {
	return stack.Quota{Stacks: s.cfg.AccountStacks, Memory: s.cfg.AccountMemory, Disk: s.cfg.AccountDisk, Service: s.cfg.ServiceMemory}
}

func (s *Server) urls() stack.URLs {
	return stack.URLs{Base: s.cfg.BaseURL, AppsDomain: s.cfg.AppsDomain}
}

// openAccounts creates the accounts for the API and the pages.
func (s *Server) openAccounts(key auth.Key) {
	s.codes = s.redis.Window("claims", s.cfg.ClaimsPerMinute, time.Minute)
	if s.cfg.mails() {
		s.links = &account.Mails{
			Store:     s.store,
			Addresses: s.redis.Window("mails-to", mailsToAddress, time.Hour),
			Networks:  s.redis.Window("mails-by", mailsByNetwork, time.Hour),
		}
	}
	s.accounts = account.New(account.Config{
		Store:     s.store,
		Passwords: auth.NewPasswords(hashesAtOnce()),
		Claims:    s.claims(key),
		Forms:     s.redis.Window("forms", s.cfg.FormsPerMinute, time.Minute),
		Codes:     s.codes,
		Heirs:     s.heirs(),
	})
}

// claims returns how stacks are claimed, from the API and from the pages.
func (s *Server) claims(key auth.Key) account.Claims {
	return account.Claims{Stacks: s.store, Host: s.claimHost(), Key: key, Mails: s.links}
}

// hashesAtOnce returns how many passwords are hashed at the same time: half of the
// cores are left to the stacks, and 4 hashes take 76 MiB.
func hashesAtOnce() int { return min(4, max(1, runtime.GOMAXPROCS(0)/2)) }

// extensionsPerMinute is how often the TTL of one stack may be changed in a minute: far
// more often than anybody needs to, and than a client can.
const extensionsPerMinute = 1000

func (s *Server) openAPI(key auth.Key) {
	s.inner = fasthttputil.NewInmemoryListener()
	s.api = api.New(api.Config{
		Store:        s.store,
		Host:         s.supervisor,
		Admission:    s.admission,
		Dir:          s.dir(),
		Metrics:      s.usage,
		Creates:      s.redis.Window("creates", s.cfg.CreatesPerHour, time.Hour),
		Refusals:     s.redis.Window("refusals", s.cfg.RefusedPerHour, time.Hour),
		Codes:        s.codes,
		Extensions:   s.redis.Window("extensions", extensionsPerMinute, time.Minute),
		Validations:  s.redis.Window("validations", s.cfg.ValidationsPerMinute, time.Minute),
		Claims:       s.claims(key),
		Domains:      s.domains,
		URLs:         s.urls(),
		Limits:       s.cfg.Limits,
		Key:          key,
		MaxUpload:    s.cfg.MaxUpload,
		Unpacked:     s.cfg.unpackLimits(),
		Wait:         s.cfg.Wait,
		Unpacks:      fair.NewQueue(s.cfg.MaxUnpacks),
		UnpackWait:   time.Minute,
		CallerHeader: wire.HeaderCallerIP,
		Ready:        s.staying,
		Lost:         s.lost,
		Held:         func(requestID string) { s.gate.rest(requestID) },
		Log:          s.log,
		Observe:      s.metrics.Request,
	})
}

func (c *Config) unpackLimits() archive.Limits {
	return archive.Limits{MaxUnpacked: c.MaxUnpacked, MaxEntries: c.MaxEntries}
}
