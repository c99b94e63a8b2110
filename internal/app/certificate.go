package app

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// A Certificate is a TLS certificate in files, which may be renewed while they are in use.
type Certificate struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex // guards the fields below
	loaded  *tls.Certificate
	written time.Time // of the newer file, as loaded
	looked  time.Time // when the files were last looked at
}

// lookEvery is how often the files are looked at, when clients connect.
const lookEvery = time.Minute

// OpenCertificate reads a certificate and its key, both PEM.
func OpenCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, log: logger(log)}
	return c, c.Reload()
}

// Reload reads the files again. After an error the certificate stays as it was.
func (c *Certificate) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load()
}

// load is called with mu held.
func (c *Certificate) load() error {
	written, err := c.changed()
	c.looked = time.Now()
	if err != nil {
		return err
	}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("reading the certificate %s and the key %s: %w", c.cert, c.key, err)
	}
	c.loaded, c.written = &loaded, written
	return nil
}

// changed returns when the newer of the files was written.
func (c *Certificate) changed() (newest time.Time, err error) {
	for _, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		if err != nil {
			return newest, fmt.Errorf("reading the certificate: %w", err)
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, nil
}

// config returns the configuration of a server with the certificate.
func (c *Certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if time.Since(c.looked) < lookEvery {
			return c.loaded, nil
		}
		written, err := c.changed()
		c.looked = time.Now()
		if err == nil && !written.Equal(c.written) {
			if err = c.load(); err == nil {
				c.log.Info("TLS certificate reloaded: its files changed", "file", c.cert)
			}
		}
		if err != nil {
			c.log.Error("reloading the TLS certificate failed; serving the previous one", "error", err)
		}
		return c.loaded, nil
	}}
}
