// Command hooks runs Berth's webhook deliveries without the rest of the server, for the
// benchmarks: the database, the embedded Redis and the dispatcher, wired as in package
// server, with stacks that exist only in the database.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/redis"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/stackid"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/webhook"
)

// perCommit is how many events are recorded in one transaction.
const perCommit = 500

func main() {
	listen := flag.String("listen", "127.0.0.1:8082", "address to take orders at")
	dir := flag.String("dir", ".", "folder of the database")
	flag.Parse()
	debug.SetGCPercent(400) // as berthd does while its heap is small
	if err := run(context.Background(), *listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "hooks:", err)
		os.Exit(1)
	}
}

// run takes orders until the process is stopped.
func run(ctx context.Context, listen, dir string) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	key, err := auth.LoadKey(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Options{Path: filepath.Join(dir, "berth.db"), Sealer: auth.NewSealer(key), Log: log})
	if err != nil {
		return err
	}
	r, err := redis.Open(ctx, redis.Embedded, log)
	if err != nil {
		return err
	}
	d := webhook.New(webhook.Config{
		Store:   s,
		Queue:   r.Queue("webhooks"),
		Timeout: 5 * time.Second,
		Retries: []time.Duration{time.Second, 5 * time.Second, 25 * time.Second},
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Log:     log,
	})
	if err := d.Start(ctx); err != nil {
		return err
	}
	o := &orders{store: s}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stack", answer(o.stack))
	mux.HandleFunc("POST /events", answer(o.events))
	mux.HandleFunc("POST /plain", answer(o.plain))
	return http.ListenAndServe(listen, mux)
}

// orders are what the benchmark asks for.
type orders struct{ store *store.Store }

// answer writes what an order returns.
func answer(do func(*http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		io.WriteString(w, text)
	}
}

// stack creates a stack whose webhook is url, and returns its id.
func (o *orders) stack(r *http.Request) (string, error) {
	k := stack.New("bench", nil, stack.Now())
	k.Webhook, k.WebhookSecret = r.FormValue("url"), auth.NewWebhookSecret()
	return k.ID, o.store.Create(r.Context(), k, nil)
}

// events records count events of the stack id.
func (o *orders) events(r *http.Request) (string, error) {
	count, err := strconv.Atoi(r.FormValue("count"))
	if err != nil {
		return "", err
	}
	for ; count > 0; count -= perCommit {
		events := make([]stack.Event, min(count, perCommit))
		for i := range events {
			events[i] = event()
		}
		_, err := o.store.Update(r.Context(), r.FormValue("id"), func(*stack.Stack) ([]stack.Event, error) { return events, nil })
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func event() stack.Event {
	return stack.Event{Type: stack.EventReady, Data: map[string]any{"service": "web", "url": "http://web-000000000001.localhost:8080"}}
}

// plain posts count such bodies to url with only an HTTP client, on kept connections,
// and returns how many it sent per second.
func (o *orders) plain(r *http.Request) (string, error) {
	const clients = 12
	count, err := strconv.Atoi(r.FormValue("count"))
	if err != nil {
		return "", err
	}
	e := event()
	e.ID, e.StackID, e.CreatedAt = 1, stackid.New(), stack.Now()
	body, err := e.MarshalJSON()
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	errs := make([]error, clients)
	start := time.Now()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range count / clients {
				if errs[i] = post(client, r.FormValue("url"), body); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%f", float64(count)/time.Since(start).Seconds()), errors.Join(errs...)
}

func post(client *http.Client, url string, body []byte) error {
	res, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
