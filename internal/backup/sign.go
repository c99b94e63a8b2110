package backup

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"aead.dev/minisign"
)

// A Trust is a public key that signs manifests.
type Trust = minisign.PublicKey

// A Signer is a secret key that signs manifests.
type Signer = minisign.PrivateKey

// ParseTrust reads a minisign public key: its text (RW…), or the name of a file that has it.
func ParseTrust(key string) (*Trust, error) {
	text := []byte(key)
	if !strings.HasPrefix(key, "RW") || len(key) != 56 {
		b, err := os.ReadFile(key)
		if err != nil {
			return nil, fmt.Errorf("%w: expected a minisign public key (RW…), or a file that has one: %w", ErrKey, err)
		}
		text = bytes.TrimSpace(b)
	}
	t := &Trust{}
	if err := t.UnmarshalText(text); err != nil {
		return nil, fmt.Errorf("%w: not a minisign public key: %w", ErrKey, err)
	}
	return t, nil
}

// ReadSigner reads a minisign secret key, which password decrypts if it is encrypted.
func ReadSigner(file, password string) (*Signer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	s := &Signer{}
	if minisign.IsEncrypted(b) {
		if *s, err = minisign.DecryptKey(password, b); err != nil {
			return nil, fmt.Errorf("%w: %s is encrypted, and the password does not open it", ErrKey, file)
		}
		return s, nil
	}
	if err := s.UnmarshalText(b); err != nil {
		return nil, fmt.Errorf("%w: %s is not a minisign secret key; make one with minisign -G -W -s %s", ErrKey, file, file)
	}
	return s, nil
}
