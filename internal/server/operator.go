package server

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/operator"
)

// governing is how the operator of an installation tells its server what to do.
type governing struct {
	bans     operator.Bans
	server   *operator.Server
	listener net.Listener
	end      context.CancelFunc // of reading the bans
	reading  sync.WaitGroup
	closing  sync.Once
}

// openOperator opens the socket for the operator's commands, and reads the bans.
func (s *Server) openOperator(ctx context.Context) (err error) {
	g := &s.governing
	if err := s.awaitDatabase(ctx, func(ctx context.Context) error { return g.bans.Read(ctx, s.store) }); err != nil {
		return err
	}
	if g.listener, err = operator.Listen(s.cfg.DataDir); err != nil {
		return err
	}
	g.server = operator.New(operator.Config{
		Store:    s.store,
		Host:     s.supervisor,
		Accounts: s.accounts,
		Bans:     &g.bans,
		Usage:    s.usage.Now,
		Builds:   s.builder.Queue,
		BackUp:   s.backUp,
		Node:     s.nodeByID(),
		Log:      s.log,
	})
	following, end := context.WithCancel(context.Background())
	g.end = end
	g.reading.Go(func() { g.bans.Follow(following, s.store, s.log) })
	return nil
}

// commandsEnd is how long commands under way may take when the server ends.
const commandsEnd = 10 * time.Second

// close ends the operator's socket after the commands under way. It may be called again.
func (g *governing) close() (err error) {
	if g.server != nil {
		g.closing.Do(func() { err = g.closeNow() })
	}
	return err
}

func (g *governing) closeNow() error {
	ctx, cancel := context.WithTimeout(context.Background(), commandsEnd)
	defer cancel()
	err := g.server.Shutdown(ctx)
	_ = g.listener.Close() // again where it was served
	g.end()
	g.reading.Wait()
	return err
}
