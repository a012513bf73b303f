package web

import (
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// policy lets a page use only what this server serves: no inline script or style, no
// frame around the page, and no forms that lead elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect sets the headers of every answer. Addresses may hold a claim code, so caches
// keep no page and other sites do not learn its address.
func protect(h *fasthttp.ResponseHeader) {
	h.Set(fiber.HeaderContentSecurityPolicy, policy)
	h.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	h.Set(fiber.HeaderCacheControl, "no-store")
	h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	h.Set(fiber.HeaderXFrameOptions, "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Robots-Tag", "noindex")
}
