// Package dnstest is a DNS server for tests, whose records they change while it
// runs. Code in this package opens a port and nothing else.
package dnstest

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Server is a recursive DNS server that knows the records it was given, and no others.
type Server struct {
	Addr string // host:port, over UDP and TCP

	mu      sync.Mutex
	records map[string][]dns.RR // by name
	rcodes  map[string]int      // by name
	silent  map[string]bool
	asked   int
}

// Start starts a server on loopback, which runs until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt is like Start, on an address of this machine.
func StartAt(t testing.TB, address string) *Server {
	t.Helper()
	s := &Server{records: map[string][]dns.RR{}, rcodes: map[string]int{}, silent: map[string]bool{}}
	stream, packets := listen(t, address)
	s.Addr = stream.Addr().String()
	for _, server := range []*dns.Server{{PacketConn: packets}, {Listener: stream}} {
		server.Handler = dns.HandlerFunc(s.answer)
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go server.ActivateAndServe()
		<-started
		t.Cleanup(func() { server.Shutdown() })
	}
	return s
}

// listen returns listeners of the same port of an address for TCP and UDP.
func listen(t testing.TB, address string) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 20 {
		stream, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		packets, err := net.ListenPacket("udp", stream.Addr().String())
		if err == nil {
			return stream, packets
		}
		stream.Close()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return nil, nil
}

// Set replaces all records of a name by those of a zone file's lines, such as "A 127.0.0.1",
// and ends what Fail and Silence did to it.
func (s *Server) Set(t testing.TB, name string, lines ...string) {
	t.Helper()
	var records []dns.RR
	for _, line := range lines {
		record, err := dns.NewRR(dns.Fqdn(name) + " 1 IN " + line)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[dns.Fqdn(name)] = records
	delete(s.rcodes, dns.Fqdn(name))
	delete(s.silent, dns.Fqdn(name))
}

// Fail answers queries for a name with a code, such as dns.RcodeServerFailure.
func (s *Server) Fail(name string, rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcodes[dns.Fqdn(name)] = rcode
}

// Silence answers no queries for a name.
func (s *Server) Silence(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent[dns.Fqdn(name)] = true
}

// Asked returns how many queries have come.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *Server) answer(w dns.ResponseWriter, query *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	name := strings.ToLower(query.Question[0].Name)
	if s.silent[name] {
		return
	}
	answer := new(dns.Msg).SetReply(query)
	answer.RecursionAvailable = true
	if rcode, fails := s.rcodes[name]; fails {
		answer.Rcode = rcode
	} else {
		s.fill(answer, name, query.Question[0].Qtype)
	}
	size := dns.MinMsgSize
	if opt := query.IsEdns0(); opt != nil {
		size = int(opt.UDPSize())
	}
	if w.RemoteAddr().Network() == "udp" {
		answer.Truncate(size)
	}
	w.WriteMsg(answer)
}

// fill adds the records of a name and a type, and those that CNAME records lead to. A name
// without records does not exist.
func (s *Server) fill(answer *dns.Msg, name string, kind uint16) {
	for range 8 {
		records := s.records[name]
		if len(records) == 0 {
			answer.Rcode = dns.RcodeNameError
			return
		}
		next := ""
		for _, record := range records {
			if record.Header().Rrtype == kind {
				answer.Answer = append(answer.Answer, record)
			} else if cname, is := record.(*dns.CNAME); is {
				answer.Answer, next = append(answer.Answer, record), strings.ToLower(cname.Target)
			}
		}
		if next == "" {
			return
		}
		name = next
	}
}
