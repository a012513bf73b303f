package supervisor

import "github.com/berth-host/berth/internal/engine"

// Serving is the container of a service that is served.
type Serving struct {
	Key       engine.Key // of the service, and of its data volume
	Container string     // id
}

// Serving returns the containers of all services that this node serves.
func (s *Supervisor) Serving() (all []Serving) {
	for _, r := range s.everyRunner() {
		g := r.serving()
		if g == nil {
			continue
		}
		for _, p := range g.allProcesses() {
			all = append(all, Serving{g.data(p.service.Spec.Name), p.id})
		}
	}
	return all
}
