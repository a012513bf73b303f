// Command reverseproxy is Go's own reverse proxy, as ten lines of code: the measure of
// what a proxy costs.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8082", "address to serve")
	upstream := flag.String("upstream", "127.0.0.1:8080", "address to pass requests to")
	flag.Parse()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256 // the default of 2 would dial for most requests
	target := &url.URL{Scheme: "http", Host: *upstream}
	handler := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
	}
	if err := http.ListenAndServe(*listen, handler); err != nil {
		fmt.Fprintln(os.Stderr, "reverseproxy:", err)
		os.Exit(1)
	}
}
