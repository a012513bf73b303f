package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/store"
)

// openCluster makes this server a node of its cluster. On one machine it only checks that
// the database is not a cluster's.
func (s *Server) openCluster(ctx context.Context, key auth.Key) error {
	if s.databaseFile != "" {
		return nil // no other server shares a file
	}
	if !s.cfg.InCluster() {
		return s.checkAlone(ctx, key)
	}
	swarm, err := s.engine.Swarm(ctx)
	if err != nil {
		return err
	}
	if !swarm.Active {
		return fmt.Errorf("BERTH_CLUSTER=swarm: the Docker engine is not in a swarm (it is %s); run docker swarm init or docker swarm join on this machine", swarm.State)
	}
	cert, certKey, authority := s.cfg.peerFiles(s.engineInfo.RootDir)
	if s.peerCerts, err = cluster.OpenCertificates(cert, certKey, authority, swarm.Node); err != nil {
		return fmt.Errorf("certificate for other nodes: %w; give berthd the files, or set BERTH_PEER_CERT, BERTH_PEER_KEY and BERTH_PEER_CA", err)
	}
	own, _, _ := swarmFiles(s.engineInfo.RootDir) // whichever the others get
	swarm.ID = cmp.Or(swarm.ID, cluster.SwarmOf(own, swarm.Node))
	s.warnOfSettings()
	if err := s.install(ctx, key, swarm.ID); err != nil {
		return err
	}
	return s.joinCluster(ctx, swarm)
}

// warnOfSettings logs what an operator may not want, although it works.
func (s *Server) warnOfSettings() {
	if isOpenRedis(s.cfg.RedisURL) {
		s.log.Warn("Redis is on another machine and BERTH_REDIS_URL does not use TLS; use rediss:// unless the network between is safe")
	}
	if s.cfg.NodeLease > emptyLease {
		s.log.Warn("BERTH_NODE_LEASE is too long for other nodes to know which stacks have no data, so stacks without data wait for a lost node as those with data do", "lease", s.cfg.NodeLease, "longest", emptyLease)
	}
}

// checkAlone refuses a database of a cluster or of another installation.
func (s *Server) checkAlone(ctx context.Context, key auth.Key) error {
	found, known, err := s.store.Installation(ctx)
	if err != nil {
		return err
	}
	if known {
		if err := s.checkMode(found); err != nil {
			return err
		}
	}
	id, err := s.instance(ctx)
	if err != nil {
		return err
	}
	want := s.wanted(key, id, "")
	if found, err = s.store.Install(ctx, want); err != nil {
		return err
	}
	found.BaseURL, found.AppsDomain = want.BaseURL, want.AppsDomain // which may change on one machine
	return s.checkInstallation(found, want)
}

// wanted returns what this server takes the installation for.
func (s *Server) wanted(key auth.Key, id, swarm string) store.Installation {
	return store.Installation{
		ID: id, KeyPrint: key.Fingerprint(), Cluster: s.cfg.Cluster, Swarm: swarm,
		BaseURL: s.cfg.BaseURL.String(), AppsDomain: s.cfg.AppsDomain,
	}
}

// checkMode refuses a database that belongs to a server with another BERTH_CLUSTER.
func (s *Server) checkMode(found store.Installation) error {
	if found.Cluster == s.cfg.Cluster {
		return nil
	}
	if s.cfg.InCluster() {
		return fmt.Errorf("BERTH_CLUSTER: the database %s is that of one machine; set BERTH_CLUSTER=off, or BERTH_DATABASE_URL to a database of the cluster", s.store.Name())
	}
	return fmt.Errorf("BERTH_CLUSTER: the database %s is that of a cluster; set BERTH_CLUSTER=%s, or BERTH_DATABASE_URL to a database of this machine alone", s.store.Name(), found.Cluster)
}

// checkInstallation refuses a database that belongs to another installation.
func (s *Server) checkInstallation(found, want store.Installation) error {
	if err := s.checkMode(found); err != nil {
		return err
	}
	switch {
	case found.ID != want.ID:
		return fmt.Errorf("the database %s belongs to another installation than the data directory %s; set BERTH_DATABASE_URL or BERTH_DATA_DIR to what belongs together", s.store.Name(), s.cfg.DataDir)
	case found.KeyPrint != want.KeyPrint:
		return fmt.Errorf("the key %s is not the one of the database %s; set BERTH_KEY_FILE to the key of its installation", s.keyFile(), s.store.Name())
	case found.BaseURL != want.BaseURL:
		return fmt.Errorf("BERTH_BASE_URL is %s, and that of the other nodes %s; set it to the same on all", want.BaseURL, found.BaseURL)
	case found.AppsDomain != want.AppsDomain:
		return fmt.Errorf("BERTH_APPS_DOMAIN is %s, and that of the other nodes %s; set it to the same on all", want.AppsDomain, found.AppsDomain)
	case want.Swarm != "" && found.Swarm != "" && found.Swarm != want.Swarm:
		return fmt.Errorf("the Docker engine is in the swarm %s, and the other nodes are in %s; join that swarm, or set BERTH_DATABASE_URL to a database of this one", want.Swarm, found.Swarm)
	}
	return nil
}

// install makes the installation, if the database belongs to nobody yet, and checks that it
// is this server's.
func (s *Server) install(ctx context.Context, key auth.Key, swarm string) error {
	text, err := os.ReadFile(s.dir().Instance())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the installation's id: %w", err)
	}
	own := strings.TrimSpace(string(text))
	found, known, err := s.store.Installation(ctx)
	if err != nil {
		return err
	}
	if !known {
		if err := s.refuseOld(ctx); err != nil {
			return err
		}
		if found, err = s.store.Install(ctx, s.wanted(key, cmp.Or(own, newInstance()), swarm)); err != nil {
			return err
		}
	}
	if err := s.checkInstallation(found, s.wanted(key, cmp.Or(own, found.ID), swarm)); err != nil {
		return err
	}
	if found.Swarm == "" && swarm != "" {
		err = s.store.SetSwarm(ctx, swarm)
	}
	s.installation = found.ID
	return errors.Join(err, s.rememberInstance(own))
}

// refuseOld refuses a database without an installation that has stacks or accounts: one of a
// server from before there were clusters.
func (s *Server) refuseOld(ctx context.Context) error {
	used, err := s.store.Used(ctx)
	if err == nil && used {
		return s.checkMode(store.Installation{Cluster: clusterOff})
	}
	return err
}

// rememberInstance writes the installation's id to the data directory, unless it has it, so
// that another installation's database is noticed.
func (s *Server) rememberInstance(own string) error {
	if own == s.installation {
		return nil
	}
	if err := os.WriteFile(s.dir().Instance(), []byte(s.installation+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the installation's id: %w", err)
	}
	return nil
}

// joinCluster registers this node.
func (s *Server) joinCluster(ctx context.Context, swarm docker.SwarmInfo) error {
	holder, err := s.holder()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(s.cfg.PeerListen) // as parsePeerListen has checked
	s.cluster, err = cluster.Join(ctx, cluster.Config{
		Store:  s.store,
		Swarm:  swarmOf{s.engine},
		Self:   store.Node{ID: swarm.Node, Name: swarm.Name, Address: net.JoinHostPort(swarm.Address, port), Version: version(), Holder: holder},
		Lease:  s.cfg.NodeLease,
		Grace:  s.cfg.NodeGrace,
		Load:   s.load,
		Floor:  s.cfg.DiskFloor,
		Failed: s.metrics.LeaseFailure,
		Note:   s.noteTakeable,
		Ousted: s.oust,
		Log:    s.log,
	})
	return err
}

// load returns how many builds run or wait here, and the free bytes of the fullest disk; 0
// if they cannot be told, and cluster.NoRoom once this node is about to stop, since that would
// cut off the builds of new stacks.
func (s *Server) load() (builds int, room int64) {
	running, waiting := s.builder.Queue()
	if s.leaving.Load() {
		return running + waiting, cluster.NoRoom
	}
	room = disk.Endless
	for _, dir := range []string{s.engineInfo.RootDir, s.cfg.DataDir} {
		free, err := disk.Free(dir)
		if err != nil {
			return running + waiting, 0
		}
		room = min(room, free.Bytes)
	}
	return running + waiting, room
}

// holder names the data directory among those of this machine.
func (s *Server) holder() (string, error) {
	var at syscall.Stat_t
	if err := syscall.Stat(s.cfg.DataDir, &at); err != nil {
		return "", fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	return fmt.Sprintf("%d:%d", at.Dev, at.Ino), nil
}

// packaged is the version of the package that the program is of; the linker sets it.
var packaged string

// version returns the version of this program: of its package, or as the Go tools recorded it.
func version() string {
	if packaged != "" {
		return packaged
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value[:min(12, len(setting.Value))]
		}
	}
	return info.Main.Version
}

// swarmOf is the swarm of an engine.
type swarmOf struct{ engine *docker.Engine }

// Words implements cluster.Swarm.
func (s swarmOf) Words(ctx context.Context) ([]store.Word, error) {
	nodes, err := s.engine.SwarmNodes(ctx)
	words := make([]store.Word, 0, len(nodes))
	for _, n := range nodes {
		words = append(words, store.Word(n))
	}
	return words, err
}
