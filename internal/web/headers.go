package web

import (
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// policy lets a page use what this server serves and nothing else: no inline
// script or style, no frame around it, forms that lead here only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect sets the headers of every answer. Addresses may hold a claim code, so
// no page is kept by a cache or named to another site.
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
