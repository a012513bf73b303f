package stackid_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/berth-host/berth/internal/stackid"
)

func TestNew_ReturnsAnotherValidIDEachTime(t *testing.T) {
	id := stackid.New()
	assert.True(t, stackid.Valid(id), id)
	assert.NotEqual(t, id, stackid.New())
	assert.Equal(t, id, stackid.FromHex(stackid.Hex(id)))
}

func TestValid_AcceptsNothingElse(t *testing.T) {
	for id, valid := range map[string]bool{
		"stk_3f2a9c1b7d4e":   true,
		"":                   false,
		"3f2a9c1b7d4e":       false,
		"stk_3F2A9C1B7D4E":   false,
		"stk_3f2a9c1b7d4":    false,
		"stk_3f2a9c1b7d4e5":  false,
		"stk_3f2a9c1b7d4e\n": false,
		"stk_lost+found":     false,
	} {
		assert.Equal(t, valid, stackid.Valid(id), "%q", id)
	}
}
