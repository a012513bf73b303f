package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// What is measured of a database with much in it.
const (
	crowd      = 1000    // stacks, of which a hundred are live
	crowdTells = 200_000 // events
	fewStacks  = 10      // of the account whose lists are asked for, and of the server beside it

	healthGoal  = 300  // milliseconds from the start of the server to its first answer
	crowdGoal   = 1000 // and to those of all live stacks
	reloadGoal  = 1000 // that a request may wait while another process takes the server's place
	crowdFactor = 1.2  // most by which an answer may take longer
	crowdAsks   = 50   // requests of each kind in a round
)

// measureCrowd compares a server whose database has much in it with one that has little.
func (b *bench) measureCrowd(ctx context.Context) error {
	return b.withBerth(ctx, many, func(ctx context.Context, full *berth) error {
		stacks, err := full.createMany(ctx, b.tools)
		if err != nil {
			return err
		}
		key, err := b.claimFew(ctx, full, stacks)
		if err != nil {
			return err
		}
		full.target.process.stop()
		if err := full.fill(ctx, crowd-len(stacks)); err != nil {
			return err
		}
		if err := b.crowdedStart(ctx, full, stacks); err != nil {
			return err
		}
		return b.withBerth(ctx, many, func(ctx context.Context, empty *berth) error {
			few, err := b.claimedFew(ctx, empty)
			if err != nil {
				return err
			}
			return b.crowdedAnswers(ctx, asker{full, stacks[0], key}, few)
		})
	})
}

// asker is a stack of an account on a server.
type asker struct {
	server *berth
	made   deployed
	key    string
}

// claimFew gives some stacks to an account, and returns its key.
func (b *bench) claimFew(ctx context.Context, server *berth, stacks []deployed) (key string, err error) {
	if key, err = b.account(ctx, server); err != nil {
		return "", err
	}
	for _, made := range stacks[:fewStacks] {
		if err := server.send(ctx, http.MethodPost, "/v0/claim", key, map[string]string{"claim_code": made.ClaimCode}, nil); err != nil {
			return "", err
		}
	}
	return key, nil
}

// claimedFew makes the few stacks of a server that has no others.
func (b *bench) claimedFew(ctx context.Context, server *berth) (asker, error) {
	program, err := answerArchive(b.tools)
	if err != nil {
		return asker{}, err
	}
	var stacks []deployed
	for range fewStacks {
		made, _, err := server.create(ctx, program)
		if err != nil {
			return asker{}, err
		}
		stacks = append(stacks, made)
	}
	key, err := b.claimFew(ctx, server, stacks)
	return asker{server, stacks[0], key}, err
}

// fill adds failed stacks, and events, to the database of a server that does not run.
func (s *berth) fill(ctx context.Context, more int) error {
	progress("filling the database with %d stacks and %d events", more, crowdTells)
	sealed, err := auth.LoadKey(filepath.Join(s.data, "key"))
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, store.Options{Path: filepath.Join(s.data, "berth.db"), Sealer: auth.NewSealer(sealed), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer db.Close()
	for range more {
		k := stack.New("crowd", []stack.Spec{{Name: "web", Runtime: stack.Runtime{Name: stack.Static}, Root: ".", Publish: "."}}, stack.Now())
		k.ExpiresAt = stack.Now().Add(24 * time.Hour)
		events := []stack.Event{k.Created()}
		for len(events) < crowdTells/more {
			events = append(events, stack.ServiceBuilding("web", 1, 1))
		}
		ends, err := k.DeployFailed("service web: there is no index.html", stack.Now())
		if err != nil {
			return err
		}
		events = append(events, ends...)
		if err := db.Create(ctx, k, events); err != nil {
			return err
		}
	}
	return nil
}

// crowdedStart adds the rows of how soon a server with a full database answers.
func (b *bench) crowdedStart(ctx context.Context, server *berth, stacks []deployed) error {
	var healthy, answered []float64
	for range adoptions {
		server.target.process.stop()
		start := time.Now()
		if err := b.launch(ctx, server); err != nil {
			return err
		}
		healthy = append(healthy, inMillis(time.Since(start)))
		group, limited := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for _, made := range stacks {
			group.Go(func() error {
				_, err := server.firstAnswer(limited, made)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		answered = append(answered, inMillis(time.Since(start)))
	}
	what := fmt.Sprintf("%d stacks, %d live: start of the server to ", crowd, len(stacks))
	b.table.worst(what+"its answer at /healthz", millis, healthy, healthGoal)
	b.table.worst(what+fmt.Sprintf("%d answers", len(stacks)), millis, answered, crowdGoal)
	return b.crowdedReload(ctx, server, stacks)
}

// crowdedReload adds the rows of how long requests wait while another process takes the place
// of a server with a full database.
func (b *bench) crowdedReload(ctx context.Context, server *berth, stacks []deployed) error {
	var api, service []float64
	for range adoptions {
		waits, stop := server.longestWaits(ctx, "http://"+server.target.addr+"/healthz", stacks[0].URLs["web"])
		err := server.reload(ctx)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		api, service = append(api, inMillis(waits[0])), append(service, inMillis(waits[1]))
	}
	what := fmt.Sprintf("%d stacks, %d live: longest wait during a reload of a request for ", crowd, len(stacks))
	b.table.worst(what+"the API", millis, api, reloadGoal)
	b.table.worst(what+"a service", millis, service, reloadGoal)
	return nil
}

// longestWaits asks at each URL again and again until stop, which returns the first failure.
// Afterwards waits are the longest times that an answer took.
func (s *berth) longestWaits(ctx context.Context, urls ...string) (waits []time.Duration, stop func() error) {
	waits = make([]time.Duration, len(urls))
	asking, end := context.WithCancel(ctx)
	group, _ := errgroup.WithContext(ctx)
	for i, url := range urls {
		group.Go(func() error {
			for asking.Err() == nil {
				begun := time.Now()
				if err := s.open(ctx, url); err != nil {
					return err
				}
				waits[i] = max(waits[i], time.Since(begun))
			}
			return nil
		})
	}
	return waits, func() error {
		end()
		return group.Wait()
	}
}

// open asks for a URL of this server, whatever its host, which has to answer with 200.
func (s *berth) open(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Host, req.URL.Host = req.URL.Host, s.target.addr
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, res.Status)
	}
	return err
}

// reload has another process take the server's place, and returns once the one before has
// ended.
func (s *berth) reload(ctx context.Context) error {
	p := s.target.process
	before, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	if err := p.proc.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	for {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		if found := reloaded.FindSubmatch(text[len(before):]); found != nil {
			pid, err := strconv.Atoi(string(found[1]))
			if err != nil {
				return err
			}
			return p.replacedBy(pid)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-p.done:
			return p.fault("it ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reloaded matches the line of the log about the process that has taken a server's place.
var reloaded = regexp.MustCompile(`"msg":"reloaded","pid":(\d+)`)

// crowdedAnswers adds a row for each thing that is asked of both servers in turns.
func (b *bench) crowdedAnswers(ctx context.Context, full, few asker) error {
	for _, path := range []string{"/healthz", "/v0/me", "/v0/stacks/{id}", "/v0/stacks/{id}/events", "/v0/stacks/{id}/logs", "/v0/stacks/{id}/env", "/v0/stacks/{id}/metrics", "/v0/stacks/{id}/source", "/v0/stacks/{id}/domains"} {
		var took [2][]float64
		for range b.rounds {
			for i, a := range []asker{full, few} {
				median, err := a.ask(ctx, path)
				if err != nil {
					return err
				}
				took[i] = append(took[i], median)
			}
		}
		b.table.compare(fmt.Sprintf("GET %s, %d stacks and %d events: median", path, crowd, crowdTells), "%.2f ms", took[0], fmt.Sprint(fewStacks, " stacks"), took[1], crowdFactor)
	}
	return nil
}

// ask sends a request again and again, and returns the median of how many milliseconds it took.
func (a asker) ask(ctx context.Context, path string) (float64, error) {
	path = strings.ReplaceAll(path, "{id}", a.made.ID)
	var took []float64
	for range crowdAsks {
		begun := time.Now()
		if err := a.server.call(ctx, http.MethodGet, path, a.key, "", nil, nil); err != nil {
			return 0, err
		}
		took = append(took, inMillis(time.Since(begun)))
	}
	return median(took), nil
}
