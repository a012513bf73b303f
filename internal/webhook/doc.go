// Package webhook delivers every event of a stack to the stack's webhook (docs/api.md,
// "Webhook delivery"). It follows the events in the database by their ids, so it learns
// of an event once it is committed and never delays a change of state.
//
// A delivery is identified by the id of its event alone: each attempt reads the event,
// the URL and the secret again, so waiting deliveries are small and a new URL counts at
// once. Deliveries wait in lanes, one for each stack, and are sent in parallel within
// the lanes' bounds (lanes.go). Each attempt is one request on a new connection,
// through a dialer that checks the address it actually dials (guard.go, send.go).
// Failed deliveries that may still succeed go to the retry queue, which is in Redis.
//
// A starting server continues with the events whose first attempt had not begun
// (mark.go), and drops pending retries. The secret of a deleted stack stays until its
// last event is delivered or given up.
//
// Code in this package reads events, writes what became of their delivery, and talks to
// receivers. It changes no stack.
package webhook
