package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"
)

func checkRedis(ctx context.Context, h *Host, _ answer) Check {
	if h.Redis == nil {
		return good("embedded in the server")
	}
	if err := h.Redis(ctx); err != nil {
		return bad(Warn, fmt.Sprintf("Redis does not accept writes: %v; limits and retries are kept in memory, for each server alone", err), "start Redis, or correct BERTH_REDIS_URL")
	}
	return good("Redis accepts writes")
}

func checkDatabase(ctx context.Context, h *Host, _ answer) Check {
	detail, err := h.Database(ctx)
	if err != nil {
		return failed(err, "do as it says, or correct BERTH_DATA_DIR and BERTH_DATABASE_URL; only if the database or its key is lost or damaged, restore both from a backup")
	}
	return good("%s", detail)
}

// soon is how long before its end a certificate should have been renewed: authorities'
// clients renew a month before, so two weeks mean that it failed several times.
const soon = 14 * 24 * time.Hour

func checkCertificates(ctx context.Context, h *Host, _ answer) Check {
	if h.Certificates == nil {
		return skipped("%s", h.NoTLS)
	}
	const fix = "renew the certificate and put it in place; with BERTH_TLS=acme, see the server's log for why the authority refuses"
	found, err := h.Certificates(ctx)
	if err != nil {
		return failed(err, "correct BERTH_TLS_CERT and BERTH_TLS_KEY: one chain for the base URL's host and all names below the apps domain")
	}
	if len(found) == 0 {
		return good("none yet; each is ordered on the first visit of its name")
	}
	status, parts := OK, []string{}
	first := found[0].End
	for _, c := range found {
		left := c.End.Sub(h.Now())
		if c.End.Before(first) {
			first = c.End
		}
		switch {
		case left <= 0:
			status = Fail
			parts = append(parts, fmt.Sprintf("%s has ended on %s", c.Name, c.End.Format(time.DateOnly)))
		case left < soon:
			status = worse(status, Warn)
			parts = append(parts, fmt.Sprintf("%s ends on %s", c.Name, c.End.Format(time.DateOnly)))
		}
	}
	if status == OK {
		return good("%d valid; the first to end does so on %s", len(found), first.Format(time.DateOnly))
	}
	return bad(status, strings.Join(parts, ", "), fix)
}

func worse(a, b Status) Status {
	if a == Fail {
		return a
	}
	return b
}

func checkImages(ctx context.Context, h *Host, a answer) Check {
	if a.err != nil {
		return skipped(noEngine)
	}
	missing, err := h.Images(ctx)
	if err != nil {
		return failed(err, "see the engine's log (journalctl -u docker)")
	}
	if len(missing) == 0 {
		return good("all base images are there")
	}
	return bad(Warn, "missing base images: "+strings.Join(missing, ", ")+"; the first deploy that needs one waits while it is built", "berthd images build")
}

func checkPublicURL(ctx context.Context, h *Host, _ answer) Check {
	if h.PublicURL == nil {
		return skipped("%s", h.NotPublic)
	}
	if err := h.PublicURL(ctx); err != nil {
		return failed(err, "point the name in BERTH_BASE_URL at this machine, open its port, let a proxy pass the Host header on, and check its certificate")
	}
	return good("%s leads to this server", h.URL)
}
