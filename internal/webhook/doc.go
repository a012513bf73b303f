// Package webhook hands every event of a stack to the stack's webhook
// (docs/api.md, "Webhook delivery"). It follows the events in the database by
// their ids, so it learns of an event once it is committed and never holds up a
// change of state.
//
// A delivery is known by the id of its event and nothing else: each attempt
// reads the event, the URL and the secret again, which makes a waiting delivery
// small and a new URL count at once. Deliveries wait in lanes, one for each
// stack, and are sent in parallel as far as the lanes' bounds allow (lanes.go).
// An attempt is one request on a connection of its own, through a dialer that
// checks the address really dialled (guard.go, send.go). What fails and may
// still work goes to the retry queue, which is in Redis.
//
// A server that starts goes on with the events whose first attempt had not begun
// (mark.go), and drops the retries that were pending.
package webhook
