package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"skein.blue/internal/clients"
	"skein.blue/internal/say"
)

// A front listens.
type front struct {
	log     *slog.Logger
	limiter say.Limiter
}

// listen starts both listeners of a daemon.
func (f *front) listen(t *tasks, o *ServeOptions, h handlers) (api, admin net.Addr, err error) {
	share := divideDescriptors(openFiles())
	if api, err = f.serveHTTP(t, "--listen", o.Listen, h.api, share.api, o.Clients.Proxies); err != nil {
		return nil, nil, err
	}
	admin, err = f.serveHTTP(t, "--admin-listen", o.AdminListen, h.admin, share.admin, clients.Proxies{})
	return api, admin, err
}

// serveHTTP starts a task that listens on address, and serves what h returns for the actual
// address, on at most so many connections. It does nothing if address is empty.
func (f *front) serveHTTP(t *tasks, flag, address string, h func(at net.Addr) http.Handler, most int, proxies clients.Proxies) (at net.Addr, err error) {
	if address == "" {
		return nil, nil // it listens nowhere
	}
	tcp, err := new(net.ListenConfig).Listen(t.ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: address in use by another program, a second skein, or this skein's other listener; stop it, or change %s: %w", flag, address, flag, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	ln := limitListener(tcp, most, proxies, func() {
		if held, ok := f.limiter.Allow(flag); ok {
			f.log.Warn("connection refused: all allowed connections are busy", "component", "http", "listener", flag, "most", most, "occurrences", held+1)
		}
	})
	srv := &http.Server{
		Handler:           h(ln.Addr()),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnState:         ln.state,
		ConnContext:       ln.context,
		MaxHeaderBytes:    256 << 10, // an expression of 16 KiB and 100 URIs, percent-encoded
		ErrorLog:          slog.NewLogLogger(f.log.With("component", "http").Handler(), slog.LevelDebug),
	}
	t.run("http "+flag, func(context.Context) error {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("%s %s: %w", flag, address, err)
		}
		return nil
	})
	t.run("http shutdown "+flag, func(ctx context.Context) error {
		<-ctx.Done()
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := srv.Shutdown(shutdown); err != nil {
			f.log.Debug("clients cut off", "error", err)
			if err := srv.Close(); err != nil {
				f.log.Debug("cannot close a listener", "error", err)
			}
		}
		return nil
	})
	return ln.Addr(), nil
}
