package wire

import "testing"

func TestOwnedByProxy_KnowsDisguises(t *testing.T) {
	for key, owned := range map[string]bool{
		"X-Forwarded-For": true, "X_forwarded_for": true, "X_forwarded-Host": true, "X-Forwarded-Anything": true,
		"Forwarded": true, "X_real_ip": true, "Transfer_encoding": true,
		"X_custom": false, "Accept": false, "Authorization": false, "X-Forward": false,
	} {
		if got := OwnedByProxy(key); got != owned {
			t.Errorf("%s: %t, want %t", key, got, owned)
		}
	}
}
