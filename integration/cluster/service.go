package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/docker/docker/api/types/container"
)

// What the lab's PostgreSQL knows.
const (
	PostgresUser     = "berth"
	PostgresPassword = "lab"
)

// service is a machine that the nodes share.
type service struct {
	name   string
	host   byte
	cmd    []string
	memory int64
	place  func(*Lab) **Machine
	works  func(*Machine) func(context.Context) error
}

var services = []service{
	{"registry", registryHost, []string{"docker-registry", "serve", "/registry.yml"}, 512 << 20, func(l *Lab) **Machine { return &l.Registry }, registryWorks},
	{"postgres", postgresHost, []string{"sh", "/postgres.sh", "-c", "max_connections=200", "-c", "synchronous_commit=on"}, 1 << 30, func(l *Lab) **Machine { return &l.Postgres }, postgresWorks},
	{"valkey", valkeyHost, []string{"valkey-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--databases", "1000"}, 256 << 20, func(l *Lab) **Machine { return &l.Valkey }, valkeyWorks},
}

func (s service) make(ctx context.Context, l *Lab, image string) (*Machine, error) {
	m, err := l.makeMachine(ctx, s.name, s.host, &container.Config{
		Image: image,
		Cmd:   s.cmd,
		Env:   []string{"POSTGRES_USER=" + PostgresUser, "POSTGRES_PASSWORD=" + PostgresPassword},
	}, &container.HostConfig{Resources: container.Resources{Memory: s.memory}, ShmSize: 256 << 20})
	if err != nil {
		return nil, err
	}
	m.works = s.works(m)
	return m, m.Start(ctx)
}

func registryWorks(m *Machine) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Address.String()+":5000/v2/", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("the registry answers %s", res.Status)
		}
		return nil
	}
}

func postgresWorks(m *Machine) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := m.SQL(ctx, "postgres", "SELECT 1")
		return err
	}
}

func valkeyWorks(m *Machine) func(context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", m.Address.String()+":6379")
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// SQL runs a statement in a database of the lab's PostgreSQL and returns its rows, one a
// line, with the columns separated by |.
func (m *Machine) SQL(ctx context.Context, database, statement string) (string, error) {
	return m.Run(ctx, "", "env", "PGPASSWORD="+PostgresPassword, "PGCONNECT_TIMEOUT=5",
		"psql", "-h", "127.0.0.1", "-U", PostgresUser, "-v", "ON_ERROR_STOP=1", "-XAtqc", statement, database)
}
