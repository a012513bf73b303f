package webhook

import (
	"context"
	"io"
	"log"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }

// resolver asks a DNS server of the test, on the loopback, which gives a name
// the addresses that answer returns, of both families. A name without any does
// not exist.
func resolver(t *testing.T, answer func(name string) []string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		packet := make([]byte, 2048)
		for {
			n, from, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply, err := reply(packet[:n], answer); err == nil {
				server.WriteTo(reply, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// reply is the packet that answers a query's packet.
func reply(packet []byte, answer func(string) []string) ([]byte, error) {
	var query dnsmessage.Message
	if err := query.Unpack(packet); err != nil {
		return nil, err
	}
	q := query.Questions[0]
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, RecursionAvailable: true, RecursionDesired: true},
		Questions: query.Questions,
	}
	addrs := answer(strings.TrimSuffix(q.Name.String(), "."))
	if len(addrs) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range addrs {
		addr := netip.MustParseAddr(text)
		header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET}
		switch {
		case q.Type == dnsmessage.TypeA && addr.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case q.Type == dnsmessage.TypeAAAA && addr.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return m.Pack()
}
