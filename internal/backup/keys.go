package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"aead.dev/minisign"
	"filippo.io/age"
)

// sealedForm matches Manifest.Sealed of parts that are encrypted with age. What follows age- tells
// the keys apart: parts for one set of keys are of no use for another.
var sealedForm = regexp.MustCompile(`^age-[0-9a-f]{16}$`)

// errOtherKey is the ErrKey of a part that is encrypted for another key.
var errOtherKey = fmt.Errorf("%w: the backup is encrypted for another key than that of --backup-key", ErrKey)

// A Seal encrypts and decrypts parts. nil leaves them as they are.
type Seal struct {
	to   []age.Recipient
	with []age.Identity // none if the file has public keys only
}

// ReadSeal reads a file of age keys, one a line: recipients (age1…), who may read the backups, or
// identities (AGE-SECRET-KEY-1…), as age-keygen writes them. With recipients alone one can make
// backups and not read them, which is enough for a server.
func ReadSeal(file string) (*Seal, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	var secret, public strings.Builder
	for line := range strings.Lines(string(b)) {
		switch line = strings.TrimSpace(line); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "AGE-SECRET-KEY-"):
			secret.WriteString(line + "\n")
		default:
			public.WriteString(line + "\n")
		}
	}
	s := &Seal{}
	if secret.Len() > 0 {
		if s.with, err = age.ParseIdentities(strings.NewReader(secret.String())); err != nil {
			return nil, fmt.Errorf("%w: %s: an identity cannot be read (the error is not shown, because it could show the key)", ErrKey, file)
		}
	}
	for _, i := range s.with {
		switch i := i.(type) {
		case *age.X25519Identity:
			s.to = append(s.to, i.Recipient())
		case *age.HybridIdentity:
			s.to = append(s.to, i.Recipient())
		}
	}
	if public.Len() > 0 {
		more, err := age.ParseRecipients(strings.NewReader(public.String()))
		if err != nil {
			return nil, fmt.Errorf("%w: %s: expected age keys, one a line (age1… or AGE-SECRET-KEY-1…): %w", ErrKey, file, err)
		}
		s.to = append(s.to, more...)
	}
	if len(s.to) == 0 {
		return nil, fmt.Errorf("%w: %s has no age key; make one with age-keygen -o %s", ErrKey, file, file)
	}
	return s, nil
}

// CanRead reports whether s has a secret key.
func (s *Seal) CanRead() bool { return s != nil && len(s.with) > 0 }

// name returns Manifest.Sealed.
func (s *Seal) name() string {
	if s == nil {
		return ""
	}
	var keys []string
	for _, to := range s.to {
		keys = append(keys, fmt.Sprint(to))
	}
	slices.Sort(keys)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(keys), "\n")))
	return "age-" + hex.EncodeToString(sum[:8])
}

// stored returns the size of a part for a file of size bytes.
func (s *Seal) stored(size int64) (int64, error) {
	if s == nil {
		return size, nil
	}
	var head counter
	w, err := age.Encrypt(&head, s.to...)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrKey, err)
	}
	// An empty file is a header, a nonce and one authenticated empty chunk of 16 bytes. Chunks have
	// 64 KiB, and 16 bytes more each (age-encryption.org/v1).
	const chunk, tag = 64 << 10, 16
	return int64(head) + size + tag*max((size+chunk-1)/chunk-1, 0), nil
}

// counter counts what is written to it.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// encrypt returns a reader of the encrypted r. The caller must read it to its end or close it.
func (s *Seal) encrypt(r io.Reader) io.ReadCloser {
	if s == nil {
		return io.NopCloser(r)
	}
	pr, pw := io.Pipe()
	go func() {
		w, err := age.Encrypt(pw, s.to...)
		if err == nil {
			_, err = io.Copy(w, r)
			err = errors.Join(err, w.Close())
		}
		pw.CloseWithError(err)
	}()
	return pr
}

// decrypt returns a reader of what was encrypted in the way that sealed names.
func (s *Seal) decrypt(sealed string, r io.Reader) (io.Reader, error) {
	if sealed == "" {
		return r, nil
	}
	if !s.CanRead() {
		return nil, fmt.Errorf("%w: the backup is encrypted; give the file with its secret key (AGE-SECRET-KEY-1…) as --backup-key", ErrKey)
	}
	plain, err := age.Decrypt(r, s.with...)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, errOtherKey
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPart, err)
	}
	return plain, nil
}

// A Trust is a public key that signs manifests.
type Trust struct{ key minisign.PublicKey }

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
	if err := t.key.UnmarshalText(text); err != nil {
		return nil, fmt.Errorf("%w: not a minisign public key: %w", ErrKey, err)
	}
	return t, nil
}

// String returns the number of the key, as minisign shows it.
func (t *Trust) String() string { return fmt.Sprintf("key %X", t.key.ID()) }

func (t *Trust) verifies(message, sig []byte) bool { return minisign.Verify(t.key, message, sig) }

// A Signer signs manifests.
type Signer struct{ key minisign.PrivateKey }

// ReadSigner reads a minisign secret key, which password decrypts if it is encrypted.
func ReadSigner(file, password string) (*Signer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	s := &Signer{}
	if minisign.IsEncrypted(b) {
		if s.key, err = minisign.DecryptKey(password, b); err != nil {
			return nil, fmt.Errorf("%w: %s is encrypted, and the password does not open it", ErrKey, file)
		}
		return s, nil
	}
	if err := s.key.UnmarshalText(b); err != nil {
		return nil, fmt.Errorf("%w: %s is not a minisign secret key; make one with minisign -G -W -s %s", ErrKey, file, file)
	}
	return s, nil
}

// sign returns the signature file of a manifest. Its trusted comment names it.
func (s *Signer) sign(name string, message []byte) []byte {
	return minisign.SignWithComments(s.key, message, name, "signature of a skein backup")
}
