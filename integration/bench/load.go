package main

import (
	"context"
	"crypto/tls"
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

	// Of the whole server beside its peers only.
	p99                 float64 // microseconds within which 99 of 100 answers come
	proxyBusy, loadBusy float64 // shares of the time of the two cores
}

var (
	wrkCount   = regexp.MustCompile(`(\d+) requests in ([\d.]+(?:ms|s|m))`)
	wrkLatency = regexp.MustCompile(`(?m)^\s*99%\s+([\d.]+(?:us|ms|s))$`)
	wrkFault   = regexp.MustCompile(`(?m)^\s*(Socket errors|Non-2xx or 3xx responses): .*$`)
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
	count, took, _, err = runWrk(ctx, t.name, wrkCommand(conns, length, "-H", "Host: "+host, "http://"+t.addr+path))
	return count, took, err
}

// wrkCommand returns a command of wrk that keeps some connections busy for a time.
func wrkCommand(conns int, length time.Duration, args ...string) []string {
	return append([]string{"wrk", "-t1", "-c" + strconv.Itoa(conns), fmt.Sprintf("-d%ds", max(1, int(length.Seconds())))}, args...)
}

// runWrk runs a command of wrk against a server, and returns how many answers came in what
// time, and with --latency within what time 99 of 100 came.
func runWrk(ctx context.Context, server string, command []string) (count float64, took, p99 time.Duration, err error) {
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("wrk on %s: %w\n%s", server, err, out)
	}
	if fault := wrkFault.Find(out); fault != nil {
		return 0, 0, 0, fmt.Errorf("load on %s: %s", server, strings.TrimSpace(string(fault)))
	}
	m := wrkCount.FindSubmatch(out)
	if m == nil {
		return 0, 0, 0, fmt.Errorf("wrk on %s says nothing of requests:\n%s", server, out)
	}
	count, _ = strconv.ParseFloat(string(m[1]), 64)
	took, err = time.ParseDuration(string(m[2]))
	if err != nil || count == 0 {
		return 0, 0, 0, fmt.Errorf("no answer of %s under load:\n%s", server, out)
	}
	if m := wrkLatency.FindSubmatch(out); m != nil {
		p99, err = time.ParseDuration(string(m[1]))
	}
	return count, took, p99, err
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
// environment. It takes any certificate: they are all of this program.
var direct = &http.Client{
	Transport: &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	Timeout:   deployTime,
}

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
