package integration

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// perl is a service that keeps one text in its $DATA_DIR.
var perl = Tree{"server.pl": `use strict; use IO::Socket::INET;
$| = 1; $SIG{PIPE} = 'IGNORE'; $SIG{TERM} = sub { print "is asked to end\n"; exit 0 };
my $kept = "$ENV{DATA_DIR}/kept";
print "$ENV{SERVICE_NAME} starts\n";
my $server = IO::Socket::INET->new(LocalAddr => '0.0.0.0', LocalPort => $ENV{PORT}, Listen => 64, ReuseAddr => 1) or die;
while (my $client = $server->accept) {
  my $line = <$client>; next unless defined $line;
  while (<$client>) { last if /^\r?\n$/ }
  my ($path) = $line =~ m{^\S+ (\S+)};
  my $body = "hello from $ENV{SERVICE_NAME}, generation $ENV{GENERATION}";
  if ($path =~ m{^/keep/(\w+)}) { open my $f, '>', $kept or die; print $f $1; close $f or die }
  if ($path eq '/kept') { open my $f, '<', $kept or die; $body = <$f> }
  exit 3 if $path eq '/exit';
  print $client "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
  close $client;
}`}

const perlManifest = `{services: [{name: web, runtime: node, start: exec perl server.pl}]}`

// slowBuild is a service whose build lasts until somebody ends it.
const slowBuild = `{services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: exec perl server.pl}]}`

// byEnd runs a test for an engine that is asked to end and for one that is killed. The
// containers of the first end with it; those of the second run until the next engine
// ends them.
func byEnd(t *testing.T, test func(t *testing.T, sig syscall.Signal)) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"term": syscall.SIGTERM, "kill": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			test(t, sig)
		})
	}
}

// says waits until a service answers, and asserts what.
func (h *Host) says(t *testing.T, st *Stack, service, path, want string) {
	t.Helper()
	eventually(t, service+" serves", func() error {
		if r := h.get(t, st.url(service, path)); r.status != http.StatusOK || r.body != want {
			return fmt.Errorf("it answers %s", r)
		}
		return nil
	})
}

func TestEngineRestart_IsARestoreAndNoCrash(t *testing.T) {
	byEnd(t, func(t *testing.T, sig syscall.Signal) {
		e := startEngine(t, "")
		h := start(t, on(e), with("BERTH_BACKOFF", "1h"), with("BERTH_BACKOFF_MAX", "1h"))
		two := h.live(t, perl, manifest(`services:
  - {name: api, runtime: node, start: exec perl server.pl}
  - {name: web, runtime: node, start: exec perl server.pl, depends_on: [api]}`))
		for _, service := range []string{"web", "api"} {
			h.says(t, two, service, "/keep/"+service, "hello from "+service+", generation 1")
		}
		site := h.live(t, page("the site"), nil)
		sleeping := h.live(t, perl, manifest(perlManifest))
		h.get(t, sleeping.url("web", "/exit"))
		h.logged(t, sleeping, "", "restarting in 1h0m0s")
		building := h.create(t, perl, manifest(slowBuild))
		redeployed := h.live(t, perl, manifest(perlManifest))
		h.begin(t, redeployed, perl, manifest(slowBuild))
		for _, st := range []*Stack{building, redeployed} {
			h.logged(t, st, "kind=build", "\nit builds\n")
		}

		e.stop(t, sig)
		require.Equal(t, "the site", h.get(t, site.url("web", "/")).body)
		require.Equal(t, "live", h.show(t, two, "").Status)
		e.run(t)

		for st, crashes := range map[*Stack]int{two: 0, redeployed: 0, sleeping: 1} {
			h.onceRestored(t, st, 1)
			require.Equal(t, crashes, count(h.events(t, st), "service.crashed"), types(h.events(t, st)))
			require.Equal(t, 1, h.show(t, st, "").Generation)
			h.says(t, st, "web", "/", "hello from web, generation 1")
		}
		for _, service := range []string{"web", "api"} {
			h.says(t, two, service, "/kept", service)
		}
		require.Zero(t, count(h.events(t, site), "stack.restored"), "a site needs no engine")
		require.Contains(t, h.settled(t, building).reason(), "the Docker engine of this host was restarted while generation 1 was being built; upload the source again")
		require.Contains(t, h.deployed(t, redeployed).deployError(), "the Docker engine of this host was restarted while generation 2 was being built; upload the source again")
		h.keeps(t, building)
		h.keeps(t, redeployed, "container web-g1", "image web", "volume web-data", "network g1")
		h.keeps(t, two, "container web-g1", "container api-g1", "image web", "image api", "volume web-data", "volume api-data", "network g1")

		require.Equal(t, 2, h.redeploy(t, redeployed, perl.plus(Tree{"more": ""}), manifest(perlManifest)).Generation)
		h.says(t, redeployed, "web", "/", "hello from web, generation 2")
		h.begin(t, building, perl, manifest(perlManifest))
		h.mustLive(t, building)
	})
}

// An engine that does not answer for longer than it may changes nothing: requests to it
// are answered in the end, and whatever does not need the engine continues.
func TestEngineSilence_IsWaitedFor(t *testing.T) {
	t.Parallel()
	const silence = 33 * time.Second // a little longer than the server waits for simple answers
	e := startEngine(t, "")
	h := start(t, on(e), quickly)
	site := h.live(t, page("the site"), nil)
	st := h.live(t, perl, manifest(perlManifest))
	crashing := h.live(t, perl, manifest(perlManifest))
	building := h.create(t, perl, manifest(`{services: [{name: web, runtime: node, build: 'echo it builds; sleep 2', start: exec perl server.pl}]}`))
	h.logged(t, building, "kind=build", "\nit builds\n")

	e.signal(t, syscall.SIGSTOP)
	begun := time.Now()
	h.begin(t, st, perl.plus(Tree{"more": ""}), manifest(perlManifest))
	h.get(t, crashing.url("web", "/exit"))
	for time.Since(begun) < silence {
		require.Equal(t, "the site", h.get(t, site.url("web", "/")).body)
		require.Equal(t, "hello from web, generation 1", h.get(t, st.url("web", "/")).body)
		require.Equal(t, "live", h.show(t, st, "").Status)
		require.Equal(t, "building", h.show(t, building, "").Status)
		h.logs(t, st, "")
		passes(t, unix(time.Now().Add(time.Second)))
	}
	require.Zero(t, count(h.events(t, crashing), "service.crashed"), "nobody could have said so")
	e.thaw(t)

	require.Equal(t, 2, h.deployed(t, st).Generation)
	h.says(t, st, "web", "/", "hello from web, generation 2")
	h.keeps(t, st, "container web-g2", "image web", "volume web-data", "network g2")
	h.mustLive(t, building)
	h.says(t, crashing, "web", "/", "hello from web, generation 1")
	eventually(t, "the crash is over", func() error {
		if events := h.events(t, crashing); count(events, "service.restarted") != 1 {
			return fmt.Errorf("the events are %v", types(events))
		}
		return nil
	})
	for live, crashes := range map[*Stack]int{st: 0, building: 0, crashing: 1} {
		events := h.events(t, live)
		require.Equal(t, crashes, count(events, "service.crashed"), types(events))
		require.Zero(t, count(events, "stack.restored"), types(events))
	}
}
