// Command receiver receives Berth's webhooks. It accepts only events with a valid
// signature.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	tolerance = 300 * time.Second // between the sender's clock and ours
	maxBody   = 1 << 20
)

func main() {
	secret := os.Getenv("WEBHOOK_SECRET")
	if secret == "" {
		log.Fatal("set WEBHOOK_SECRET to the webhook_secret that Berth returned")
	}
	http.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) { receive(w, r, secret) })
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}

func receive(w http.ResponseWriter, r *http.Request, secret string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)) // raw, because the signature covers these bytes
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	if err := verify(r.Header.Get("X-Service-Signature"), body, secret, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var event struct {
		ID      int64  `json:"id"`
		StackID string `json:"stack_id"`
		Type    string `json:"type"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, "the body is not an event", http.StatusBadRequest)
		return
	}
	fmt.Printf("accepted %d %s of %s\n", event.ID, event.Type, event.StackID)
	w.WriteHeader(http.StatusNoContent)
}

// verify checks a header of the form t=<unix seconds>,v1=<hex>.
func verify(header string, body []byte, secret string, now time.Time) error {
	fields := map[string]string{}
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	seconds, err := strconv.ParseInt(fields["t"], 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("the time of the signature is missing or too far from ours")
	}
	signature, err := hex.DecodeString(fields["v1"])
	if err != nil {
		return errors.New("the signature is not in hexadecimal")
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(fields["t"] + "."))
	mac.Write(body)
	if !hmac.Equal(signature, mac.Sum(nil)) {
		return errors.New("the signature is wrong")
	}
	return nil
}
