package builder

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"strconv"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
)

// truststorePassword is the password of the truststore that comes with Java, and its
// default. It protects nothing: certificates are public.
const truststorePassword = "changeit"

// truststore encodes the certificates of a PEM bundle as a JKS, the only form of bundle
// that Java reads.
func truststore(bundle []byte) ([]byte, error) {
	store := keystore.New(keystore.WithOrderedAliases())
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		entry := keystore.TrustedCertificateEntry{
			CreationTime: time.Unix(0, 0), // the same bytes each time
			Certificate:  keystore.Certificate{Type: "X.509", Content: block.Bytes},
		}
		if err := store.SetTrustedCertificateEntry(strconv.Itoa(len(store.Aliases())), entry); err != nil {
			return nil, fmt.Errorf("make Java's truststore: %w", err)
		}
	}
	var b bytes.Buffer
	if err := store.Store(&b, []byte(truststorePassword)); err != nil {
		return nil, fmt.Errorf("make Java's truststore: %w", err)
	}
	return b.Bytes(), nil
}
