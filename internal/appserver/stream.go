package appserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/sse"
)

// Stream answers with the server-sent events that run writes, until run returns or its
// context ends. The context ends when gone is closed, which means that the reader has
// left, or when the server is released. Each stream holds memory, so at most
// sse.MostOpen with the same key may be open; full is the error for another one.
func (s *Server) Stream(c *fiber.Ctx, key string, full error, gone <-chan struct{}, run func(ctx context.Context, out sse.Writer) error) error {
	if c.Method() == fiber.MethodHead {
		streamHead(c)
		return nil // fasthttp would end the answer with bytes that a HEAD must not have
	}
	leave, ok := s.streams.Take(key)
	if !ok {
		return full
	}
	streamHead(c)
	id := RequestID(c.Context())
	c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { // runs in any case, and at once
		defer leave()
		ctx, cancel := context.WithCancel(s.base)
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("stream panicked", "request", id, "error", fmt.Sprint(v), "trace", string(debug.Stack()))
			}
		}()
		go func() {
			defer cancel()
			select {
			case <-gone:
			case <-s.released:
			case <-ctx.Done():
			}
		}()
		if err := run(ctx, sse.NewWriter(w)); err != nil && !errors.Is(err, sse.ErrLeft) && ctx.Err() == nil {
			s.log.Error("stream broke", "request", id, "error", err)
		}
	})
	return nil
}

func streamHead(c *fiber.Ctx) {
	c.Set(fiber.HeaderContentType, sse.ContentType)
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no") // nginx would keep events back
}
