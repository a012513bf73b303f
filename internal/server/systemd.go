package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// manager tells systemd what the server does. Without systemd it does nothing.
type manager struct {
	notify func(state string)
	every  time.Duration // between two signs of life; 0 if systemd waits for none
	stop   context.CancelFunc
}

// newManager returns the manager that the environment names.
func newManager() *manager {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		limit = 0 // the variable is for another process
	}
	return &manager{
		notify: func(state string) { _, _ = daemon.SdNotify(false, state) }, // nobody can be told of a failure
		every:  limit / 2,
		stop:   func() {},
	}
}

// ready says that the listener is bound and requests are answered, and from then on gives
// signs of life as long as alive reports true.
func (m *manager) ready(status string, alive func(context.Context) bool) {
	m.notify(daemon.SdNotifyReady + "\nSTATUS=" + status)
	m.stop()
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if m.every > 0 {
		go m.beat(ctx, alive)
	}
}

// beat gives signs of life until ctx ends.
func (m *manager) beat(ctx context.Context, alive func(context.Context) bool) {
	ticker := time.NewTicker(m.every)
	defer ticker.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, m.every)
		if alive(limited) {
			m.notify(daemon.SdNotifyWatchdog)
		}
		cancel()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// reloading says that another process is about to take the server's place, until ready, and how
// long that may take: the unit's limit of the start would hold otherwise.
func (m *manager) reloading(limit time.Duration) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it fails for an unknown clock alone
	m.notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d\nSTATUS=reloading\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000, limit.Microseconds()))
}

// replacedBy says that another process has taken the server's place, and is to be watched from
// now on.
func (m *manager) replacedBy(pid int, status string) {
	m.stop()
	m.notify(fmt.Sprintf("MAINPID=%d\n%s\nSTATUS=%s", pid, daemon.SdNotifyReady, status))
}

// closing is how long the server may take after the drain time: an engine that does not
// answer delays it by half a minute.
const closing = time.Minute

// stopping says that the server shuts down, and how long that may take, since the
// operator may set another drain time than the unit was written for.
func (m *manager) stopping(drain time.Duration) {
	m.notify(fmt.Sprintf("%s\nSTATUS=shutting down\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, (drain + closing).Microseconds()))
}

// waits reports that a server is alive that waits for what it needs.
func waits(context.Context) bool { return true }

// answers reports whether the API answers.
func (s *Server) answers(ctx context.Context) bool {
	transport := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return s.inner.Dial() },
		DisableKeepAlives: true,
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/healthz", nil)
	if err != nil {
		return false
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}
