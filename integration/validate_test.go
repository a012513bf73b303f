package integration

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// validate sends a form to POST /v0/validate.
func (h *Host) validate(t *testing.T, tree Tree, fields Fields) Reply {
	t.Helper()
	body, contentType := form(t, archive(t, tree), fields)
	return h.do(t, h.request(t, http.MethodPost, "/v0/validate", bytes.NewReader(body), "Content-Type", contentType))
}

func TestValidate_TheExamplesArePlannedAsTheyAreBuilt(t *testing.T) {
	t.Parallel()
	h := start(t)
	for name, want := range map[string][]string{
		"guestbook": {"static", "node"},
		"vite":      {"static"},
		"go":        {"go"},
		"python":    {"python"},
		"paths":     {"static", "node"},
	} {
		r := h.validate(t, folder(t, "../examples/"+name), nil)
		require.Equal(t, http.StatusOK, r.status, r.body)
		v := r.json(t)
		require.Equal(t, true, v["valid"], "%s: %s", name, r.body)
		var runtimes []string
		for _, service := range v["services"].([]any) {
			runtimes = append(runtimes, service.(map[string]any)["runtime"].(string))
		}
		require.ElementsMatch(t, want, runtimes, name)
	}
	require.Empty(t, h.files(t), "a validation left files")
	require.Equal(t, objects{}, h.objects(t), "a validation made something in the engine")
}

func TestValidate_WhatItFindsACreateRefuses(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, fields := range []Fields{
		manifest("services: [{name: web, runtime: nodejs}]"),
		manifest("services: [{name: web, buildCommand: make, runtime: static}, {name: web, runtime: static}]"),
		{"ttl": "48h"},
	} {
		v := h.validate(t, page("hello"), fields).json(t)
		require.Equal(t, false, v["valid"])
		var faults []string
		for _, fault := range v["faults"].([]any) {
			faults = append(faults, fault.(string))
		}
		refused := h.post(t, archive(t, page("hello")), fields, "").refused(t, http.StatusUnprocessableEntity)
		// The latest expiry differs by the second.
		require.Equal(t, strings.Split(refused, ", so")[0], strings.Split(strings.Join(faults, "\n"), ", so")[0])
	}
}

func TestValidate_IsLimited(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_VALIDATIONS_PER_MINUTE", "2"))
	for _, left := range []string{"1", "0"} {
		r := h.validate(t, page("hello"), nil)
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Equal(t, left, r.header.Get("RateLimit-Remaining"))
	}
	r := h.validate(t, page("hello"), nil)
	r.refused(t, http.StatusTooManyRequests)
	require.Equal(t, "60", r.header.Get("Retry-After"))
}
