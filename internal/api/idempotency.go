package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

const (
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotent-Replayed" // true on the answer to an earlier attempt

	mostKey      = 255 // characters of an Idempotency-Key
	runningRetry = 5 * time.Second
	sweepEvery   = time.Minute
)

// operation is a request that an Idempotency-Key makes happen once.
type operation struct {
	name      string
	shape     shape // of the upload; zero if there is none
	status    int   // of the answer
	failpoint string
	fails     bool // whether fail=true makes the answer of one that does not go live an error
}

var (
	creating    = operation{"create", createShape, fiber.StatusCreated, "create-unanswered", false}
	deploying   = operation{"deploy", deployShape, fiber.StatusOK, "deploy-unanswered", true}
	configuring = operation{"env", shape{}, fiber.StatusOK, "env-unanswered", false}
)

// receipts records the requests with an Idempotency-Key.
type receipts struct {
	store        Store
	callerHeader string
	running      sync.Map // keys of receipts whose requests are under way
	log          *slog.Logger
	base         context.Context
}

// attempt is one of several requests with the same Idempotency-Key. The first accepted
// one leaves a receipt; the others get its answer. A refused one leaves nothing, so
// that the key can be used again once the request is mended. Without a key, an attempt
// is always the first and leaves no receipt.
type attempt struct {
	receipts *receipts
	op       operation
	key      string         // of the receipt; "" for a request without an Idempotency-Key
	address  string         // of the caller
	source   string         // digest of the source that it deploys; "" for none, or before that is known
	earlier  *store.Receipt // of the first request; nil for the first
}

// begin begins an attempt at an operation on behalf of who, on a stack unless id is "".
// While the first attempt runs, others are a Conflict. The caller must end it with
// releaseKey.
func (r *receipts) begin(c *fiber.Ctx, op operation, id, who string) (*attempt, error) {
	t := &attempt{receipts: r, op: op, address: c.Get(r.callerHeader)}
	key, err := idempotencyKey(c)
	if err != nil || key == "" {
		return t, err
	}
	what := strings.TrimSpace(op.name + " " + id)
	sum := sha256.Sum256([]byte(strings.Join([]string{what, who, key}, "\n")))
	t.key = hex.EncodeToString(sum[:])
	if _, running := r.running.LoadOrStore(t.key, true); running {
		return nil, &stack.Error{
			Kind: stack.Conflict, RetryAfter: runningRetry,
			Detail: "a request with this Idempotency-Key is still running; send it again in a few seconds to get its answer",
		}
	}
	earlier, ok, err := r.store.FindReceipt(r.base, t.key)
	if err != nil {
		t.releaseKey()
		return nil, fmt.Errorf("look for an earlier request: %w", err)
	}
	if ok {
		t.earlier, t.source = &earlier, earlier.Source
	}
	return t, nil
}

// sweep removes expired receipts once a minute, until stop is closed.
func (r *receipts) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := r.store.SweepReceipts(r.base); err != nil {
			r.log.Error("receipts not swept", "error", err)
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// releaseKey lets the next request with the attempt's key begin. It does nothing for an
// attempt without one.
func (t *attempt) releaseKey() { t.receipts.running.Delete(t.key) }

// idempotencyKey returns the header's value, "" if there is none.
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

// record makes a change that deploys the source with a digest, "" for none, and records
// the attempt's receipt, nil without a key. If the change is undone, it removes the receipt.
func (t *attempt) record(body []byte, src string, secrets oneTime, change func(*store.Receipt) error) error {
	t.source = src
	receipt, err := t.receipt(body, secrets)
	if err != nil {
		return err
	}
	err = change(receipt)
	if err != nil && t.key != "" {
		if err := t.receipts.store.DropReceipt(t.receipts.base, t.key, receipt.CreatedAt); err != nil {
			t.receipts.log.Error("receipt not dropped", "error", err)
		}
	}
	return err
}

// receipt returns the receipt to record with the change; nil without a key.
func (t *attempt) receipt(body []byte, secrets oneTime) (*store.Receipt, error) {
	if t.key == "" {
		return nil, nil
	}
	r := &store.Receipt{Key: t.key, Digest: body, Source: t.source, Address: t.address, CreatedAt: stack.Now()}
	if secrets == (oneTime{}) {
		return r, nil
	}
	var err error
	r.OneTime, err = plainjson.Marshal(secrets)
	return r, err
}

// answerFirst answers the attempt that was accepted and records the answer for later
// ones. With fail, an answer that says that the deploy failed is an error.
func (a *API) answerFirst(c *fiber.Ctx, t *attempt, s *stack.Stack, secrets oneTime, wait, fail bool) error {
	mine := s.LastDeploy
	s, err := a.ended(c, s, mine, wait)
	if err != nil {
		return err
	}
	failpoint.Here(t.op.failpoint)
	answer, err := a.keep(t, s, mine)
	if err != nil {
		return err
	}
	return a.send(c, t, s.ID, answer, secrets, fail)
}

// keep returns a stack in JSON, with the deploy that the attempt began, and records it as
// the answer for later attempts. The one-time fields are not in it: the receipt holds
// them sealed.
func (a *API) keep(t *attempt, s *stack.Stack, mine stack.Deploy) (string, error) {
	v := a.view(s)
	v.Deploy = viewDeploy(s.DeployOf(mine))
	text, err := plainjson.Marshal(v)
	if err != nil || t.key == "" {
		return string(text), err
	}
	if err := t.receipts.store.AnswerReceipt(t.receipts.base, t.key, string(text)); err != nil {
		t.receipts.log.Error("answer not kept for later attempts", "stack", s.ID, "error", err)
	}
	return string(text), nil
}

// send answers an attempt with a stack in JSON and the one-time fields that it is shown.
// With fail, the answer of a deploy that failed is why, as an error.
func (a *API) send(c *fiber.Ctx, t *attempt, id, answer string, secrets oneTime, fail bool) error {
	status := t.op.status
	if why := readAnswer(answer).failure(); fail && why != "" {
		text, err := plainjson.Marshal(fiber.Map{"detail": why})
		if err != nil {
			return err
		}
		answer, status = string(text), fiber.StatusUnprocessableEntity
	}
	if secrets != (oneTime{}) {
		text, err := plainjson.Marshal(secrets)
		if err != nil {
			return err
		}
		answer = strings.TrimSuffix(answer, "}") + "," + strings.TrimPrefix(string(text), "{")
	}
	if t.source != "" {
		appserver.SetETag(c, t.source)
	}
	if status == fiber.StatusCreated {
		c.Location(a.cfg.URLs.Base.JoinPath("v0", "stacks", id).String())
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).SendString(answer)
}

// repeat answers an attempt after the first, whose upload must be the same.
func (a *API) repeat(c *fiber.Ctx, t *attempt) error {
	wait, fail, err := t.op.wantsOutcome(c)
	if err != nil {
		return err
	}
	if err := a.sameBody(c, t); err != nil {
		return err
	}
	answer := t.earlier.Answer
	if answer == "" || (wait && readAnswer(answer).unsettled()) {
		if answer, err = a.answerAgain(c, t, wait); err != nil {
			return err
		}
	}
	secrets, err := a.secretsAgain(t)
	if err != nil {
		return err
	}
	c.Set(headerReplayed, "true")
	return a.send(c, t, t.earlier.StackID, answer, secrets, fail)
}

// sameBody refuses a body other than that of the first attempt.
func (a *API) sameBody(c *fiber.Ctx, t *attempt) error {
	if err := a.uploads.room(); err != nil {
		return err
	}
	digest, err := a.digestOf(c, t.op)
	if err == nil && !bytes.Equal(digest, t.earlier.Digest) {
		err = unprocessable("this Idempotency-Key was used with another body in the last 24 hours; repeat that body, or use a new key for a new request")
	}
	return err
}

// digestOf reads the body of a request, and returns the digest that its receipt has.
func (a *API) digestOf(c *fiber.Ctx, op operation) (digest []byte, err error) {
	if op.shape.fields == nil {
		_, digest, err = readChange(c)
		return digest, err
	}
	err = a.uploads.receive(c, op.shape, func(u *upload) error {
		digest = u.form.digest()
		return nil
	})
	return digest, err
}

// answerAgain returns the stack in JSON as it is now, for an attempt after a first one
// that got no answer or did not wait for it.
func (a *API) answerAgain(c *fiber.Ctx, t *attempt, wait bool) (string, error) {
	s, err := a.gate.find(t.earlier.StackID)
	if err != nil {
		return "", err
	}
	mine := readAnswer(t.earlier.Answer).mine(s)
	if s, err = a.ended(c, s, mine, wait); err != nil {
		return "", err
	}
	return a.keep(t, s, mine)
}

// answered is what an answer says of the deploy that its request began.
type answered struct {
	Status    stack.Status
	Deploying *int
	Deploy    *struct {
		Generation, Attempt int
		Outcome             stack.Outcome
		Error               *string
		StartedAt           float64 `json:"started_at"`
	} // nil in an answer of an earlier version
}

func readAnswer(text string) (a answered) {
	_ = json.Unmarshal([]byte(text), &a) // it is "", or was encoded here
	return a
}

// mine returns the deploy as it was accepted; the stack's latest if the answer does not
// have it.
func (a answered) mine(s *stack.Stack) stack.Deploy {
	d := a.Deploy
	if d == nil {
		return s.LastDeploy
	}
	began := time.UnixMicro(int64(math.Round(d.StartedAt * 1e6))).UTC()
	return stack.Deploy{Generation: d.Generation, Attempt: d.Attempt, StartedAt: began}
}

// failure returns why the deploy ended without going live; "" if it did not.
func (a answered) failure() string {
	if a.Deploy == nil || a.Deploy.Error == nil {
		return ""
	}
	return *a.Deploy.Error
}

// unsettled reports whether the deploy is under way.
func (a answered) unsettled() bool {
	if a.Deploy == nil {
		return a.Status == stack.Building || a.Deploying != nil
	}
	return a.Deploy.Outcome == stack.Underway
}

// secretsAgain returns the one-time fields that an attempt may see again. A webhook
// secret is among them only if it is the stack's own.
func (a *API) secretsAgain(t *attempt) (secrets oneTime, err error) {
	if t.earlier.OneTime == nil || t.address != t.earlier.Address {
		return oneTime{}, nil
	}
	if err := json.Unmarshal(t.earlier.OneTime, &secrets); err != nil {
		return oneTime{}, fmt.Errorf("read the receipt: %w", err)
	}
	if s, err := a.gate.find(t.earlier.StackID); err != nil || s.WebhookSecret != secrets.WebhookSecret {
		secrets.WebhookSecret = ""
	}
	return secrets, nil
}
