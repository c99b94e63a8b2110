package clients

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// TokenPrefix begins every token, so that it is not taken for a service auth token of an account.
const TokenPrefix = "skein_"

// A file of tokens has one token on each line. # begins a comment.
//
//	NAME SHA256 [rate=N] [bytes=N] [expires=TIME]
//
// NAME names the client in logs and metrics, SHA256 is the hex hash of the token, which the file
// does not contain, rate is in requests a second, bytes in bytes of answers a second, 0 for no
// limit, and TIME is a date or RFC 3339. Without rate or bytes, those of all clients apply.

// A Token is a line of the file.
type Token struct {
	Name    string
	Limit   Limit
	Expires time.Time // zero: never

	hash [sha256.Size]byte
}

// Tokens are the tokens of a file.
type Tokens struct {
	path  string
	usual Limit
	all   atomic.Pointer[map[[sha256.Size]byte]*Token]
}

// OpenTokens reads a file of tokens. usual applies to tokens without limits of their own.
func OpenTokens(path string, usual Limit) (*Tokens, error) {
	t := &Tokens{path: path, usual: usual}
	_, err := t.Reload()
	return t, err
}

// Reload reads the file again, and returns how many tokens it has. After an error the tokens stay
// as they were.
func (t *Tokens) Reload() (n int, err error) {
	b, err := os.ReadFile(t.path)
	if err != nil {
		return 0, fmt.Errorf("reading the tokens: %w", err)
	}
	all := map[[sha256.Size]byte]*Token{}
	names := map[string]int{}
	line := 0
	for text := range strings.Lines(string(b)) {
		line++
		text, _, _ = strings.Cut(text, "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		token, err := parseToken(text, t.usual)
		if err != nil {
			return 0, fmt.Errorf("%s, line %d: %w", t.path, line, err)
		}
		if at := names[token.Name]; at > 0 {
			return 0, fmt.Errorf("%s, line %d: the name %s is already used in line %d", t.path, line, token.Name, at)
		}
		if all[token.hash] != nil {
			return 0, fmt.Errorf("%s, line %d: %s has the token of %s", t.path, line, token.Name, all[token.hash].Name)
		}
		names[token.Name], all[token.hash] = line, token
	}
	t.all.Store(&all)
	return len(all), nil
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func badName(name string) error {
	return fmt.Errorf("the name %q: use at most 64 letters, digits, and . _ -", name)
}

func parseToken(line string, usual Limit) (*Token, error) {
	fields := strings.Fields(line)
	t := &Token{Name: fields[0], Limit: usual}
	if !tokenName.MatchString(t.Name) {
		return nil, badName(t.Name)
	}
	if len(fields) < 2 {
		return nil, errors.New("expected NAME SHA256 [rate=N] [bytes=N] [expires=TIME]")
	}
	hash, err := hex.DecodeString(fields[1])
	if err != nil || len(hash) != len(t.hash) {
		return nil, fmt.Errorf("the hash of %s is not 64 hex digits; skein token %[1]s makes a token and its line", t.Name)
	}
	t.hash = [sha256.Size]byte(hash)
	for _, f := range fields[2:] {
		name, value, _ := strings.Cut(f, "=")
		var err error
		switch name {
		case "rate":
			t.Limit.Requests, err = parseRate(value)
		case "bytes":
			t.Limit.Bytes, err = parseRate(value)
		case "expires":
			t.Expires, err = parseExpiry(value)
		default:
			return nil, fmt.Errorf("unknown option %q; use rate=N, bytes=N or expires=TIME", f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return t, nil
}

func parseRate(s string) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n <= 1e12) {
		return 0, fmt.Errorf("%q is not a number from 0 to 1e12", s)
	}
	return n, nil
}

func parseExpiry(s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return t, fmt.Errorf("%q is neither a date nor a time such as 2026-11-22T06:00:00Z", s)
	}
	return t, nil
}

// find returns the token that a client sent, nil if the file does not have it. Its hash is compared, so
// that the time that takes says nothing about the tokens.
func (t *Tokens) find(token string) *Token {
	return (*t.all.Load())[sha256.Sum256([]byte(token))]
}

// NewToken makes a token, and its line for the file.
func NewToken(name, options string) (token, line string, err error) {
	if !tokenName.MatchString(name) {
		return "", "", badName(name)
	}
	token = TokenPrefix + rand.Text()
	line = strings.TrimSpace(fmt.Sprintf("%s %x %s", name, sha256.Sum256([]byte(token)), options))
	_, err = parseToken(line, Limit{})
	return token, line, err
}
