package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"filippo.io/age"
)

// Recipient is somebody who can open a backup.
type Recipient = age.Recipient

// Recipients returns those whose keys or passphrase will open a backup, none for one that is
// not encrypted. Names are public keys of age.
func Recipients(names []string, passphraseFile string) ([]Recipient, error) {
	var all []Recipient
	for _, name := range names {
		r, err := age.ParseX25519Recipient(name)
		if err != nil {
			return nil, fmt.Errorf("%q is not a public key of age, as age-keygen prints it: %w", name, err)
		}
		all = append(all, r)
	}
	if passphraseFile == "" {
		return all, nil
	}
	if len(all) > 0 {
		return nil, errors.New("a backup is encrypted for recipients or with a passphrase, not both")
	}
	phrase, err := passphrase(passphraseFile)
	if err != nil {
		return nil, err
	}
	r, err := age.NewScryptRecipient(phrase)
	if err != nil {
		return nil, err
	}
	return []Recipient{r}, nil
}

// Identities returns what opens an encrypted backup: the private keys in a file, as age-keygen
// writes it, or a passphrase.
func Identities(identityFile, passphraseFile string) ([]age.Identity, error) {
	var all []age.Identity
	if identityFile != "" {
		file, err := os.Open(identityFile)
		if err != nil {
			return nil, fmt.Errorf("--identity: %w", err)
		}
		defer file.Close()
		if all, err = age.ParseIdentities(file); err != nil {
			return nil, fmt.Errorf("%s does not have private keys of age: %w", identityFile, err)
		}
	}
	if passphraseFile == "" {
		return all, nil
	}
	phrase, err := passphrase(passphraseFile)
	if err != nil {
		return nil, err
	}
	id, err := age.NewScryptIdentity(phrase)
	if err != nil {
		return nil, err
	}
	return append(all, id), nil
}

// passphrase returns the first line of a file.
func passphrase(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", fmt.Errorf("%s has no passphrase in its first line", file)
	}
	return line, nil
}

// Encrypt returns a writer that encrypts for recipients to w. Its Close ends that, and leaves w
// open.
func Encrypt(w io.Writer, recipients []Recipient) (io.WriteCloser, error) {
	return age.Encrypt(w, recipients...)
}

// ageIntro begins each file of age.
const ageIntro = "age-encryption.org/"

// decrypt returns what is in an encrypted file.
func decrypt(ctx context.Context, r io.Reader, identities []age.Identity) (io.Reader, error) {
	if len(identities) == 0 {
		return nil, errors.New("the backup is encrypted; name the file with the private key by --identity, or that with the passphrase by --passphrase-file")
	}
	plain, err := age.Decrypt(r, identities...)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return nil, errors.New("the backup is encrypted for another key or with another passphrase")
	}
	if err != nil {
		return nil, fmt.Errorf("the backup cannot be decrypted: %w", err)
	}
	return decrypted{ctx, plain}, nil
}

// decrypted reads what is in an encrypted file. What cannot be decrypted was changed.
type decrypted struct {
	ctx context.Context
	r   io.Reader
}

func (d decrypted) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	var reading *fs.PathError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.As(err, &reading):
		return n, err
	case d.ctx.Err() != nil:
		return n, context.Cause(d.ctx)
	}
	return n, fmt.Errorf("%w (%w)", errChanged, err)
}
