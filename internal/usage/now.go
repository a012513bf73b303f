package usage

// Use is what a service used when it was measured last. What was not measured is nil.
type Use struct {
	Cores  *float64 // processors, on average over the last step
	Memory *int64   // bytes
}

// Now returns what the services of all stacks used when they were measured last, by stack and
// service.
func (r *Recorder) Now() map[string]map[string]Use {
	r.turn.Lock()
	defer r.turn.Unlock()
	all := map[string]map[string]Use{}
	for key, p := range r.latest {
		use := Use{Memory: p.Memory}
		if cores, ok := p.Cores(); ok {
			use.Cores = &cores
		}
		if all[key.stack] == nil {
			all[key.stack] = map[string]Use{}
		}
		all[key.stack][key.service] = use
	}
	return all
}
