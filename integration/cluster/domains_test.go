package cluster

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/authority"
	"github.com/berth-host/berth/internal/domain/dnstest"
)

// plainPort is that of BERTH_HTTP_LISTEN.
const plainPort = 8081

// certified gives the servers the certificates of an authority in the test's process, and a
// DNS server there. The nodes reach both at the host's address on their network.
func certified(t *testing.T, names *dnstest.Server, a authority.Authority) Option {
	return func(c *Cluster) {
		trust := c.dir + ".crt"
		for name, value := range map[string]string{
			"BERTH_BASE_URL": "https://berth.test:8080", "BERTH_TLS": "acme", "BERTH_ACME_DIRECTORY": a.Directory, "SSL_CERT_FILE": trust,
			"BERTH_DNS": names.Addr, "BERTH_DOMAIN_PENDING_EVERY": "200ms", "BERTH_HTTP_LISTEN": fmt.Sprintf(":%d", plainPort),
		} {
			c.env[name] = value
		}
		for _, h := range c.hosts {
			_, err := h.node.Machine.Run(t.Context(), string(a.Trust), "sh", "-c", `mkdir -p "$1" && cat >"$0"`, trust, path.Dir(trust))
			require.NoError(t, err)
			h.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: a.Issues}
		}
	}
}

// serial returns the number of the certificate that the node shows for a host, "" for none.
func (h *Host) serial(t *testing.T, host string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", h.node.AddressOf(8080).String(), &tls.Config{
		ServerName: host, RootCAs: h.client.Transport.(*http.Transport).TLSClientConfig.RootCAs,
	})
	if err != nil {
		return ""
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// plainly asks the plain listener of the node for a host.
func (h *Host) plainly(t *testing.T, host string) Reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.node.AddressOf(plainPort).String()+"/x", http.NoBody)
	require.NoError(t, err)
	req.Host = host
	res, err := (&http.Client{CheckRedirect: h.client.CheckRedirect}).Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return Reply{status: res.StatusCode, header: res.Header}
}

// Every node serves every domain with the same certificate, wherever the stack is.
func TestCluster_EveryNodeServesADomainWithItsCertificate(t *testing.T) {
	long(t)
	const host = "www.example.com"
	gateway := theLab(t).address(gatewayHost).String()
	names := dnstest.StartAt(t, gateway)
	var nodes []string
	for _, n := range theLab(t).Nodes {
		nodes = append(nodes, "A "+n.Machine.Address.String())
	}
	names.Set(t, "berth.test", nodes...)
	names.Set(t, host, nodes[2])
	a := authority.Start(t, authority.Config{Address: gateway, Resolver: names.Addr, PlainPort: plainPort, Port: 8080})
	c := start(t, clustered, certified(t, names, a))
	owner, other := c.on("w1"), c.on("m1")
	key := other.account(t, "ana@example.com")
	st := c.liveOn(t, owner, app, appManifest)
	require.Equal(t, http.StatusOK, other.claim(t, key, st).status)
	for _, h := range c.hosts {
		require.Empty(t, h.serial(t, host))
		require.Equal(t, http.StatusMisdirectedRequest, h.plainly(t, host).status)
	}

	domains := "/v0/stacks/" + st.ID + "/domains"
	r := other.as(t, key, http.MethodPost, domains, `{"host": "`+host+`", "service": "web"}`)
	require.Equal(t, http.StatusCreated, r.status, r)
	var made struct {
		Records []struct{ Type, Name, Value string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &made))
	proof := last(made.Records)
	require.Equal(t, "TXT _berth."+host, proof.Type+" "+proof.Name)
	names.Set(t, proof.Name, "TXT "+proof.Value)
	serial := ""
	for _, h := range c.hosts {
		eventually(t, h.node.Name+" has the domain's certificate", func() error {
			if serial = h.serial(t, host); serial == "" {
				return fmt.Errorf("it has none: %s", h.as(t, key, http.MethodGet, domains+"/"+host, ""))
			}
			return nil
		})
	}
	served := func() {
		t.Helper()
		for _, h := range c.hosts {
			h.serves(t, "https://"+host+":8080/", "200 hello from web, generation 1")
			require.Equal(t, serial, h.serial(t, host), h.node.Name)
			r := h.plainly(t, host)
			require.Equal(t, http.StatusPermanentRedirect, r.status, h.node.Name)
			require.Equal(t, "https://"+host+":8080/x", r.header.Get("Location"))
			require.Contains(t, h.as(t, key, http.MethodGet, domains, "").body, `"status":"active"`)
		}
	}
	served()
	other.berthd(t, "stacks", "move", st.ID, "w2")
	require.Same(t, c.on("w2"), c.owner(t, st))
	served()
	for _, h := range c.hosts {
		h.stop(t)
		h.run(t)
	}
	served()

	require.Equal(t, http.StatusOK, other.as(t, key, http.MethodDelete, "/v0/stacks/"+st.ID, "").status)
	c.forget(st)
	for _, h := range c.hosts {
		eventually(t, h.node.Name+" does not know the domain", func() error {
			return same("421 ", h.plainly(t, host).String()+h.serial(t, host))
		})
	}
}
