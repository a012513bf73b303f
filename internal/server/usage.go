package server

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/usage"
)

// openUsage creates what records what stacks use, without starting it.
func (s *Server) openUsage() {
	s.usage = usage.New(usage.Config{
		Path:      s.dir().Metrics(),
		Traffic:   s.routes.Take,
		Processes: s.processes,
		Measure:   s.driver.Measure,
		Size: func(stack, service string) (usage.Size, bool) {
			bytes, at, ok := s.supervisor.DataSize(stack, service)
			return usage.Size{Bytes: bytes, At: at}, ok
		},
		Events:   s.store.EventsSince,
		Gone:     s.isDeleted,
		Ceilings: usage.Ceilings{Cores: s.cfg.ServiceCPUs, Memory: s.cfg.ServiceMemory},
		Log:      s.log,
	})
	s.answerLately()
}

// processes returns the containers that are measured.
func (s *Server) processes() []usage.Process {
	serving := s.supervisor.Serving()
	all := make([]usage.Process, len(serving))
	for i, p := range serving {
		all[i] = usage.Process(p)
	}
	return all
}

// isDeleted reports whether there is no stack of an id any more.
func (s *Server) isDeleted(ctx context.Context, id string) (bool, error) {
	_, err := s.store.Get(ctx, id)
	if stack.KindOf(err) == stack.NotFound {
		return true, nil
	}
	return false, err
}

// pageMetrics are the metrics for the pages. A page about one stack is made by its node, and
// a list by any.
type pageMetrics struct {
	here   *usage.Recorder
	others *others // nil on one machine
}

func (m pageMetrics) Read(ctx context.Context, id string, named []string, w usage.Window) (usage.History, error) {
	return m.here.Read(ctx, id, named, w)
}

// latelyLimit is how long a list waits for what the other nodes measured.
const latelyLimit = 300 * time.Millisecond

// Lately is usage.Recorder.Lately for stacks of any node. What a node does not say in time is
// missing.
func (m pageMetrics) Lately(ctx context.Context, ids []string) map[string][]uint64 {
	if m.others == nil {
		return m.here.Lately(ids)
	}
	ctx, cancel := context.WithTimeout(ctx, latelyLimit)
	defer cancel()
	ofNodes := map[string][]string{}
	for _, id := range ids {
		if node, err := m.others.table.Owner(ctx, id); err == nil {
			ofNodes[node] = append(ofNodes[node], id)
		}
	}
	all := m.here.Lately(ofNodes[m.others.nodes.Self()])
	var mu sync.Mutex
	var asked sync.WaitGroup
	for node, ids := range ofNodes {
		if _, state := m.others.nodes.Address(node); state != peer.Ready || node == m.others.nodes.Self() {
			continue
		}
		asked.Go(func() {
			var said map[string][]uint64
			if m.others.pool.Call(ctx, node, http.MethodPost, latelyCall, ids, &said) != nil {
				return // the list is shown without
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, said)
		})
	}
	asked.Wait()
	return all
}

// latelyCall is the name of the call of which the answer is that of usage.Recorder.Lately.
const latelyCall = "lately"

// answerLately makes this node say what it measured.
func (s *Server) answerLately() {
	if s.others == nil {
		return
	}
	s.others.calls.Handle(http.MethodPost, latelyCall, peer.Answer(func(_ context.Context, ids []string) (map[string][]uint64, error) {
		return s.usage.Lately(ids), nil
	}))
}
