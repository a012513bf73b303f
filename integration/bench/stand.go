package main

import (
	"context"
	"slices"
	"time"
)

// figure describes a row of a comparison.
type figure struct {
	what string
	unit unit
	more bool // a higher value is better
	// most is how many times as bad as the old value the new one may be, in the median
	// of the rounds; 0: it may be as bad as the worst of the old ones.
	most float64
}

// trial measures some figures of one commit, with a value for each.
type trial struct {
	figures []figure
	measure func(context.Context) ([]float64, error)
}

// stand is what a section arranges for one commit: its trials, and the servers and
// stacks that they need.
type stand struct {
	trials []trial
	server *berth // whose log explains failures; nil: there is none
	ends   []func()
	fault  error // why it could not be arranged
}

// later has end called when the stand is closed; the last one given is called first.
func (s *stand) later(end func()) { s.ends = append(s.ends, end) }

// close stops and removes what was arranged.
func (s *stand) close() {
	for _, end := range slices.Backward(s.ends) {
		end()
	}
	s.ends = nil
}

// openBerth starts a server for the trials.
func (s *stand) openBerth(ctx context.Context, b *bench, settings []string) (*berth, error) {
	server, err := b.openBerth(ctx, settings)
	if err != nil {
		return nil, err
	}
	s.server = server
	s.later(server.close)
	return server, nil
}

// addTrial adds a trial.
func (s *stand) addTrial(measure func(context.Context) ([]float64, error), figures ...figure) {
	s.trials = append(s.trials, trial{figures, measure})
}

// one adds a trial of a single figure.
func (s *stand) one(f figure, measure func(context.Context) (float64, error)) {
	s.addTrial(func(ctx context.Context) ([]float64, error) {
		value, err := measure(ctx)
		return []float64{value}, err
	}, f)
}

// time adds a trial of how long something takes.
func (s *stand) time(what string, measure func(context.Context) (time.Duration, error)) {
	s.one(figure{what: what, unit: millis}, func(ctx context.Context) (float64, error) {
		took, err := measure(ctx)
		return inMillis(took), err
	})
}

// rehearse runs each trial once, whose values do not count.
func (s *stand) rehearse(ctx context.Context) error {
	for i := range s.trials {
		if _, err := s.measure(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// trialTime is the longest that one measurement may take.
const trialTime = 3 * time.Minute

// measure runs one of the trials.
func (s *stand) measure(ctx context.Context, i int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	values, err := s.trials[i].measure(ctx)
	if err != nil && s.server != nil {
		err = s.server.target.process.fault(err.Error())
	}
	return values, err
}
