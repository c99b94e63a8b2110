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

// A front is what clients reach: the query API and the admin listener.
type front struct {
	log        *slog.Logger
	limiter    say.Limiter
	api, admin net.Listener // admin is nil if there is none
}

// listen opens both listeners.
func (f *front) listen(ctx context.Context, o *ServeOptions) (err error) {
	if f.api, err = listenAt(ctx, "--listen", o.Listen); err == nil && o.AdminListen != "" {
		f.admin, err = listenAt(ctx, "--admin-listen", o.AdminListen)
	}
	return err
}

func listenAt(ctx context.Context, flag, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: address in use by another program, a second skein, or this skein's other listener; stop it, or change %s: %w", flag, address, flag, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return ln, nil
}

// adminAt returns the address of the admin listener, nil if there is none.
func (f *front) adminAt() net.Addr {
	if f.admin == nil {
		return nil
	}
	return f.admin.Addr()
}

// serve starts the tasks that serve both handlers.
func (f *front) serve(t *tasks, o *ServeOptions, api, admin http.Handler) {
	share := divideDescriptors(openFiles())
	f.serveHTTP(t, o, "--listen", f.api, api, share.api, o.Clients.Proxies)
	if f.admin != nil {
		f.serveHTTP(t, o, "--admin-listen", f.admin, admin, share.admin, clients.Proxies{})
	}
}

// serveHTTP serves on at most so many connections.
func (f *front) serveHTTP(t *tasks, o *ServeOptions, flag string, at net.Listener, h http.Handler, most int, proxies clients.Proxies) {
	ln := limitListener(at, most, proxies, func() {
		if held, ok := f.limiter.Allow(flag); ok {
			f.log.Warn("connection refused: all allowed connections are busy", "component", "http", "listener", flag, "most", most, "occurrences", held+1)
		}
	})
	srv := &http.Server{
		Handler:           h,
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
			return fmt.Errorf("%s: %w", flag, err)
		}
		return nil
	})
	t.run("http shutdown "+flag, func(ctx context.Context) error {
		select {
		case <-o.Draining:
			srv.SetKeepAlivesEnabled(false)
		case <-ctx.Done():
		}
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
}
