package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

const (
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotent-Replayed" // true on an answer that was given before

	mostKey      = 255 // characters of an Idempotency-Key
	runningRetry = 5 * time.Second
	sweepEvery   = time.Minute
)

// attempt is one request of those that an Idempotency-Key makes one of. The
// first that is accepted leaves a receipt; the others get its answer. What is
// refused leaves nothing, so that the key can be used again once the request is
// mended. Without a key, an attempt is always the first and leaves no receipt.
type attempt struct {
	api     *API
	key     string // of the receipt; "" for a request without an Idempotency-Key
	address string
	earlier *store.Receipt // of the first request; nil for the first
}

// attempt begins a request on behalf of a caller to what route names. A first
// request that still runs is a Conflict. The caller of attempt calls end.
func (a *API) attempt(c *fiber.Ctx, route, who string) (*attempt, error) {
	t := &attempt{api: a, address: c.Get(a.ClientHeader)}
	key, err := idempotencyKey(c)
	if err != nil || key == "" {
		return t, err
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{route, who, key}, "\n")))
	t.key = hex.EncodeToString(sum[:])
	if !a.running.add(t.key) {
		return nil, &stack.Error{
			Kind: stack.Conflict, RetryAfter: runningRetry,
			Detail: "a request with this Idempotency-Key is still running; send it again in a few seconds to get its answer",
		}
	}
	r, ok, err := a.Store.FindReceipt(a.base, t.key)
	if err != nil {
		t.end()
		return nil, fmt.Errorf("look for an earlier request: %w", err)
	}
	if ok {
		t.earlier = &r
	}
	return t, nil
}

// end lets the next request with the key begin.
func (t *attempt) end() {
	if t.key != "" {
		t.api.running.remove(t.key)
	}
}

// idempotencyKey reads the header; "" when there is none.
func idempotencyKey(c *fiber.Ctx) (string, error) {
	values := c.Request().Header.PeekAll(headerIdempotencyKey)
	if len(values) == 0 {
		return "", nil
	}
	key := string(values[0])
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(values) > 1 || key == "" || len(key) > mostKey || strings.ContainsFunc(key, strange) {
		return "", invalid("the Idempotency-Key must be one value of 1 to %d visible ASCII characters, such as a UUID", mostKey)
	}
	return key, nil
}

// receipt is what is to be recorded with the change; nil without a key.
func (t *attempt) receipt(digest []byte, secrets oneTime) (*store.Receipt, error) {
	if t.key == "" {
		return nil, nil
	}
	r := &store.Receipt{Key: t.key, Digest: digest, Address: t.address, CreatedAt: stack.Now()}
	if secrets == (oneTime{}) {
		return r, nil
	}
	var err error
	r.OneTime, err = encodeJSON(secrets)
	return r, err
}

// drop forgets the receipt of a change that was undone.
func (t *attempt) drop() {
	if t.key == "" {
		return
	}
	if err := t.api.Store.DropReceipt(t.api.base, t.key); err != nil {
		t.api.Log.Error("receipt not dropped", "error", err)
	}
}

// keep records the answer for later attempts. It is the view without its
// one-time fields, which the receipt has sealed.
func (t *attempt) keep(v stackView) {
	if t.key == "" {
		return
	}
	v.oneTime = nil
	answer, err := encodeJSON(v)
	if err == nil {
		err = t.api.Store.AnswerReceipt(t.api.base, t.key, string(answer))
	}
	if err != nil {
		t.api.Log.Error("answer not kept for later attempts", "stack", v.ID, "error", err)
	}
}

// repeat answers an attempt after the first, whose upload must be the same.
func (a *API) repeat(c *fiber.Ctx, t *attempt, fields []formField, status int) error {
	wait, err := waits(c)
	if err != nil {
		return err
	}
	if err := a.sameUpload(c, t, fields); err != nil {
		return err
	}
	answer := t.earlier.Answer
	if answer == "" || (wait && unsettled(answer)) {
		v, err := a.viewAgain(c, t, wait)
		if err != nil {
			return err
		}
		text, err := encodeJSON(v)
		if err != nil {
			return err
		}
		answer = string(text)
	}
	secrets, err := a.secretsAgain(t)
	if err != nil {
		return err
	}
	c.Set(headerReplayed, "true")
	if status == fiber.StatusCreated {
		c.Location(a.address(t.earlier.StackID))
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).SendString(joinObjects(answer, secrets))
}

// sameUpload refuses an upload other than that of the first attempt.
func (a *API) sameUpload(c *fiber.Ctx, t *attempt, fields []formField) error {
	if err := a.room(); err != nil {
		return err
	}
	dir, err := a.Host.TempDir()
	if err != nil {
		return fmt.Errorf("make a folder for the upload: %w", err)
	}
	defer a.removeAll(dir)
	f, err := a.upload(c, fields, dir)
	if err != nil {
		return err
	}
	if !bytes.Equal(f.digest(), t.earlier.Digest) {
		return unprocessable("this Idempotency-Key was used with another body in the last 24 hours; repeat that body, or take a new key for a new request")
	}
	return nil
}

// viewAgain is the stack as it is now, for an attempt whose first was not
// answered, or not waited for.
func (a *API) viewAgain(c *fiber.Ctx, t *attempt, wait bool) (stackView, error) {
	s, err := a.find(t.earlier.StackID)
	if err == nil && wait {
		s, err = a.settled(c, s)
	}
	if err != nil {
		return stackView{}, err
	}
	v := a.view(s)
	t.keep(v)
	return v, nil
}

// unsettled tells whether an answer shows a stack that is being built.
func unsettled(answer string) bool {
	var v struct {
		Status    stack.Status
		Deploying *int
	}
	return json.Unmarshal([]byte(answer), &v) == nil && (v.Status == stack.Building || v.Deploying != nil)
}

// secretsAgain are the one-time fields that an attempt is shown again, as a
// JSON object; "" for none. Of webhook secrets only the stack's own is one.
func (a *API) secretsAgain(t *attempt) (string, error) {
	if t.earlier.OneTime == nil || t.address != t.earlier.Address {
		return "", nil
	}
	var secrets oneTime
	if err := json.Unmarshal(t.earlier.OneTime, &secrets); err != nil {
		return "", fmt.Errorf("read the receipt: %w", err)
	}
	if s, err := a.find(t.earlier.StackID); err != nil || s.WebhookSecret != secrets.WebhookSecret {
		secrets.WebhookSecret = ""
	}
	if secrets == (oneTime{}) {
		return "", nil
	}
	text, err := encodeJSON(secrets)
	return string(text), err
}

// joinObjects is one JSON object with the fields of both; more may be "".
func joinObjects(object, more string) string {
	if more == "" {
		return object
	}
	return strings.TrimSuffix(object, "}") + "," + strings.TrimPrefix(more, "{")
}

// sweepReceipts forgets, once a minute, what is kept too long.
func (a *API) sweepReceipts() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := a.Store.SweepReceipts(a.base); err != nil {
			a.Log.Error("receipts not swept", "error", err)
		}
		select {
		case <-tick.C:
		case <-a.released:
			return
		}
	}
}

// keySet is the keys of the requests that run.
type keySet struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

// add is false for a key that is there already.
func (k *keySet) add(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.keys[key]; there {
		return false
	}
	if k.keys == nil {
		k.keys = map[string]struct{}{}
	}
	k.keys[key] = struct{}{}
	return true
}

func (k *keySet) remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, key)
}
