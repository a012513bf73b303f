package proxy

import (
	"net/http"

	"github.com/berth-host/berth/internal/exchange"
)

// carry answers r from an upstream, or returns why there is no answer.
func carry(up *exchange.Upstream, w http.ResponseWriter, r *http.Request, of exchange.Tenant) *exchange.Failure {
	if r.Method == http.MethodConnect {
		writePage(w, r, connectPage)
		return nil
	}
	return up.Serve(newCall(w, r), of)
}

// writeFailure answers a request that an upstream did not answer. The page cut is for one
// that could not be reached or broke off.
func writeFailure(w http.ResponseWriter, r *http.Request, f *exchange.Failure, cut page) {
	if f.Unread {
		closeAfter(w, r)
	}
	writePage(w, r, failurePage(f, cut))
}

func failurePage(f *exchange.Failure, cut page) page {
	switch f.Kind {
	case exchange.Late:
		return latePage
	case exchange.Invalid:
		return invalidPage(f.Err)
	case exchange.BrokenBody:
		return brokenBodyPage
	case exchange.Silent:
		return silentPage
	default:
		return cut
	}
}
