package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// silence is how long an attempt waits for an answer.
const silence = 1500 * time.Millisecond

// network tries to reach every target, side by side. A target's name says how:
// "tcp …", "udp …" or "name …"; others are not for the network.
func network(targets map[string]string) map[string]string {
	var mu sync.Mutex
	var all sync.WaitGroup
	outcomes := map[string]string{}
	for name, address := range targets {
		attempt := map[string]func(string) string{"tcp": dial, "udp": send, "name": lookUp}[kind(name)]
		if attempt == nil {
			continue
		}
		all.Go(func() {
			result := attempt(address)
			mu.Lock()
			defer mu.Unlock()
			outcomes[name] = result
		})
	}
	all.Wait()
	outcomes["addresses"] = addresses()
	return outcomes
}

func kind(name string) string {
	first, _, _ := strings.Cut(name, " ")
	return first
}

// dial opens a TCP connection.
func dial(address string) string {
	conn, err := net.DialTimeout("tcp", address, silence)
	if err != nil {
		return netOutcome(err)
	}
	return outcome(conn.Close())
}

// send sends a datagram and waits for the answer to it.
func send(address string) string {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return netOutcome(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		return netOutcome(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return netOutcome(err)
	}
	_, err = conn.Read(make([]byte, 64))
	return netOutcome(err)
}

// sendFromMany sends so many datagrams, each from a port of its own.
func sendFromMany(address string, times int) string {
	for range times {
		conn, err := net.Dial("udp", address)
		if err != nil {
			return netOutcome(err)
		}
		_, err = conn.Write([]byte("hello"))
		if err = errors.Join(err, conn.Close()); err != nil {
			return netOutcome(err)
		}
	}
	return "ok"
}

// lookUp resolves a name.
func lookUp(host string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*silence)
	defer cancel()
	_, err := net.DefaultResolver.LookupHost(ctx, host)
	return netOutcome(err)
}

func netOutcome(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "unknown"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return "silence"
	}
	return outcome(err)
}

// addresses lists the kinds of addresses of this container.
func addresses() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return outcome(err)
	}
	kinds := "IPv4"
	for _, a := range all {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() == nil && !ip.IsLoopback() {
			kinds = "IPv4 IPv6"
		}
	}
	return kinds
}
