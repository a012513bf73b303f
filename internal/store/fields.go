package store

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// stackColumns are the columns of a stack, in the order of fields.
var stackColumns = []string{
	"id", "name", "status", "owner", "claim_email", "network", "node", "epoch", "manage_token_hash", "revoked_token_hash", "claim_code_hash",
	"created_at", "deployed_at", "expires_at", "expired_at", "retained_until", "noticed",
	"generation", "generation_attempt", "source", "deploying", "attempt", "last_deploy", "error", "deploy_error", "webhook",
	"services", "attempted", "layers", "caches_dropped", "webhook_secret_sealed", "secrets_sealed", "env_sealed", "variables_sealed",
	"pushed", "data_key_sealed", "snapshot", "regained", "data_volumes", "primary_hosts", "disk",
}

var (
	columnList   = strings.Join(stackColumns, ", ")
	placeholders = strings.TrimSuffix(strings.Repeat("?, ", len(stackColumns)), ", ")

	insertStack  = "INSERT INTO stacks (" + columnList + ") VALUES (" + placeholders + ") RETURNING seq"
	updateStack  = "UPDATE stacks SET (" + columnList + ") = (" + placeholders + ") WHERE seq = ?"
	selectStacks = "SELECT " + columnList + ", seq FROM stacks WHERE "
)

// fields returns the places that a stack's columns are written from and read into. They
// are read from first to last: opening a sealed one needs the id, and the environment
// needs the services it belongs to.
func (s *Store) fields(k *stack.Stack) []any {
	sealed := func(column string, value any) *sealedJSON {
		return &sealedJSON{sealer: s.sealer, row: &k.ID, column: column, value: value}
	}
	return []any{
		&k.ID, &k.Name, (*string)(&k.Status), (*nullText)(&k.Owner), &k.ClaimEmail, &k.Network, &k.Node, &k.Epoch,
		(*nullBlob)(&k.ManageTokenHash), (*nullBlob)(&k.RevokedTokenHash), (*nullBlob)(&k.ClaimCodeHash),
		(*micros)(&k.CreatedAt), (*micros)(&k.DeployedAt), (*micros)(&k.ExpiresAt),
		(*micros)(&k.ExpiredAt), (*micros)(&k.RetainedUntil), &k.Noticed,
		&k.Generation.Number, &k.Generation.Attempt, &plainJSON{&k.Generation.Source}, &k.Deploying, &k.Attempt, &plainJSON{&k.LastDeploy}, &k.Error, &k.DeployError, &k.Webhook,
		&plainJSON{&k.Generation.Services}, &plainJSON{&k.Attempted}, &plainJSON{&k.Layers}, &k.CachesDropped,
		sealed("webhook_secret", &k.WebhookSecret),
		sealed("secrets", &k.Secrets),
		sealed("env", &environments{&k.Generation.Services}),
		sealed("variables", &k.Generation.Variables),
		&k.Pushed, sealed("data_key", &k.DataKey), &plainJSON{&k.Snapshot}, &plainJSON{&k.Regained}, &plainJSON{&k.DataVolumes}, &plainJSON{&k.PrimaryHosts}, &plainJSON{&k.Disk},
	}
}

// places makes a stack and returns its places for a row of selectStacks.
func (s *Store) places(k **stack.Stack) []any {
	*k = &stack.Stack{}
	return append(s.fields(*k), &(*k).Seq)
}

// nullText is a text that is NULL if it is empty.
type nullText string

func (t nullText) Value() (driver.Value, error) {
	if t == "" {
		return nil, nil
	}
	return string(t), nil
}

func (t *nullText) Scan(src any) error {
	text, ok := src.(string)
	if !ok && src != nil {
		return fmt.Errorf("%T is not text", src)
	}
	*t = nullText(text)
	return nil
}

// nullBlob is a byte string that is NULL if it is empty.
type nullBlob []byte

func (b nullBlob) Value() (driver.Value, error) {
	if len(b) == 0 {
		return nil, nil
	}
	return []byte(b), nil
}

func (b *nullBlob) Scan(src any) error {
	blob, ok := src.([]byte)
	if !ok && src != nil {
		return fmt.Errorf("%T is not a blob", src)
	}
	*b = bytes.Clone(blob)
	return nil
}

// micros is a time as microseconds since 1970; the zero time is NULL.
type micros time.Time

func (m micros) Value() (driver.Value, error) {
	if time.Time(m).IsZero() {
		return nil, nil
	}
	return time.Time(m).UnixMicro(), nil
}

func (m *micros) Scan(src any) error {
	switch n := src.(type) {
	case nil:
		*m = micros{}
	case int64:
		*m = micros(time.UnixMicro(n).UTC())
	default:
		return fmt.Errorf("%T is not a time", src)
	}
	return nil
}

// plainJSON is a value stored as JSON; value is a pointer to it.
type plainJSON struct{ value any }

func (j plainJSON) Value() (driver.Value, error) {
	text, err := json.Marshal(j.value)
	return string(text), err
}

func (j *plainJSON) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("%T is not JSON", src)
	}
	return json.Unmarshal([]byte(text), j.value)
}

// sealedJSON is a value stored as sealed JSON; value is a pointer to it. An empty
// value, null or "", is stored as NULL.
type sealedJSON struct {
	sealer Sealer
	row    *string
	column string
	value  any
}

func (j sealedJSON) Value() (driver.Value, error) {
	plain, err := json.Marshal(j.value)
	if err != nil || string(plain) == `null` || string(plain) == `""` {
		return nil, err
	}
	return j.sealer.Seal(plain, *j.row, j.column), nil
}

func (j *sealedJSON) Scan(src any) error {
	sealed, ok := src.([]byte)
	if !ok {
		if src != nil {
			return fmt.Errorf("%T is not sealed", src)
		}
		return nil
	}
	plain, err := j.sealer.Open(sealed, *j.row, j.column)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, j.value)
}

// environments is the Env of every service, in the services' order. A service's own
// JSON omits it, since its values may be secret.
type environments struct{ services *[]stack.Service }

// MarshalJSON returns null if no service has an environment.
func (e *environments) MarshalJSON() ([]byte, error) {
	var envs []map[string]stack.Env
	for i, service := range *e.services {
		if service.Spec.Env != nil {
			if envs == nil {
				envs = make([]map[string]stack.Env, len(*e.services))
			}
			envs[i] = service.Spec.Env
		}
	}
	return json.Marshal(envs)
}

// UnmarshalJSON sets the environment of each service.
func (e *environments) UnmarshalJSON(text []byte) error {
	var envs []map[string]stack.Env
	if err := json.Unmarshal(text, &envs); err != nil {
		return err
	}
	if len(envs) != len(*e.services) {
		return fmt.Errorf("environments of %d services for %d", len(envs), len(*e.services))
	}
	for i := range envs {
		(*e.services)[i].Spec.Env = envs[i]
	}
	return nil
}
