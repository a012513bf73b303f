package build

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"strconv"
	"unicode/utf16"
)

// truststore writes the certificates of a PEM bundle in the form that Java takes
// them in, its own JKS: a number that marks it, its version, each certificate
// under a name, and a checksum. Java knows no other bundle.
func truststore(bundle []byte) []byte {
	var certificates [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			certificates = append(certificates, block.Bytes)
		}
	}
	w := keystore{}
	w.number(0xFEEDFEED)
	w.number(2)
	w.number(len(certificates))
	for i, der := range certificates {
		w.number(2) // a trusted certificate
		w.text(strconv.Itoa(i))
		w.Write(make([]byte, 8)) // when it was added
		w.text("X.509")
		w.number(len(der))
		w.Write(der)
	}
	w.Write(w.checksum())
	return w.Bytes()
}

type keystore struct{ bytes.Buffer }

func (w *keystore) number(n int) { w.Write(binary.BigEndian.AppendUint32(nil, uint32(n))) }

func (w *keystore) text(s string) {
	w.Write(binary.BigEndian.AppendUint16(nil, uint16(len(s))))
	w.WriteString(s)
}

// checksum is over the password that Java's own truststore has, words that the
// form fixes, and all that was written.
func (w *keystore) checksum() []byte {
	h := sha1.New()
	for _, unit := range utf16.Encode([]rune("changeit")) {
		h.Write(binary.BigEndian.AppendUint16(nil, unit))
	}
	h.Write([]byte("Mighty Aphrodite"))
	h.Write(w.Bytes())
	return h.Sum(nil)
}
