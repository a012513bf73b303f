package server

import (
	"context"
	"net"

	"github.com/berth-host/berth/internal/operator"
)

// governing is how the operator of an installation tells its server what to do.
type governing struct {
	bans     operator.Bans
	server   *operator.Server
	listener net.Listener
	end      context.CancelFunc // of reading the bans
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
		NodeName: s.nodeName(),
		Log:      s.log,
	})
	following, end := context.WithCancel(context.Background())
	g.end = end
	go g.bans.Follow(following, s.store, s.log)
	return nil
}

// close ends the operator's socket. What is under way ends with it.
func (g *governing) close() error {
	if g.server == nil {
		return nil
	}
	g.end()
	err := g.server.Close()
	_ = g.listener.Close() // again where it was served
	return err
}
