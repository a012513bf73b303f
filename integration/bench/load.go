package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// target is a server under load.
type target struct {
	name    string
	process *process
	addr    string
}

// sample is the result of one load.
type sample struct {
	rps    float64
	micros float64 // processor time of the server per request
}

var (
	wrkCount = regexp.MustCompile(`(\d+) requests in ([\d.]+)(ms|s|m)`)
	wrkFault = regexp.MustCompile(`(?m)^\s*(Socket errors|Non-2xx or 3xx responses): .*$`)
)

// load sends a server requests for a path on keep-alive connections.
func (t *target) load(ctx context.Context, host, path string, conns int, length time.Duration) (sample, error) {
	before, err := t.process.cpu()
	if err != nil {
		return sample{}, err
	}
	count, took, err := wrk(ctx, t, host, path, conns, length)
	if err != nil {
		return sample{}, err
	}
	after, err := t.process.cpu()
	return sample{rps: count / took.Seconds(), micros: float64((after - before).Microseconds()) / count}, err
}

// wrk is a load without a look at the server's processes. It returns how many answers came in
// what time.
func wrk(ctx context.Context, t *target, host, path string, conns int, length time.Duration) (count float64, took time.Duration, err error) {
	out, err := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(conns),
		fmt.Sprintf("-d%ds", max(1, int(length.Seconds()))), "-H", "Host: "+host, "http://"+t.addr+path).CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("wrk on %s: %w\n%s", t.name, err, out)
	}
	if fault := wrkFault.Find(out); fault != nil {
		return 0, 0, fmt.Errorf("load on %s: %s", t.name, strings.TrimSpace(string(fault)))
	}
	m := wrkCount.FindSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("wrk on %s says nothing of requests:\n%s", t.name, out)
	}
	count, _ = strconv.ParseFloat(string(m[1]), 64)
	took, err = time.ParseDuration(string(m[2]) + string(m[3]))
	if err != nil || count == 0 {
		return 0, 0, fmt.Errorf("no answer of %s under load:\n%s", t.name, out)
	}
	return count, took, nil
}

// expect fails unless a server answers a path with 200 and so many bytes.
func (t *target) expect(ctx context.Context, host, path string, size int64) error {
	status, n, err := get(ctx, "http://"+t.addr+path, host)
	if err != nil {
		return t.process.fault(err.Error())
	}
	if status != http.StatusOK || n != size {
		return t.process.fault(fmt.Sprintf("GET %s: status %d and %d bytes, want 200 and %d", path, status, n, size))
	}
	return nil
}

// direct connects to the loopback and to containers, without a proxy from the
// environment.
var direct = &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: deployTime}

// get sends one request and reads the whole answer.
func get(ctx context.Context, url, host string) (status int, size int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	r.Host = host
	answer, err := direct.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	size, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, size, err
}

// series are the samples of several servers, measured alternately.
type series struct{ rps, micros map[string][]float64 }

// inTurns loads the servers one after the other, round by round, every second round
// backwards.
func (b *bench) inTurns(ctx context.Context, targets []*target, host, path string, conns int) (series, error) {
	s := series{map[string][]float64{}, map[string][]float64{}}
	for round := range b.rounds {
		for i := range targets {
			t := targets[i]
			if round%2 == 1 {
				t = targets[len(targets)-1-i]
			}
			got, err := t.load(ctx, host, path, conns, b.round)
			if err != nil {
				return s, err
			}
			s.rps[t.name] = append(s.rps[t.name], got.rps)
			s.micros[t.name] = append(s.micros[t.name], got.micros)
		}
	}
	return s, nil
}
