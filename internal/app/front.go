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

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/internal/clients"
	"skein.blue/internal/say"
)

// A front is what clients reach: the query API and the admin listener, with the limits of their clients.
type front struct {
	log        *slog.Logger
	limiter    say.Limiter
	refused    *prometheus.CounterVec
	api, admin net.Listener // admin is nil if there is none
}

func newFront(log *slog.Logger) *front {
	f := &front{log: log, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_query_refused_total", Help: "Requests refused before they were worked on, by reason: rate, bytes, token (unknown) or expired.",
	}, []string{"reason"})}
	for _, why := range []string{"rate", "bytes", "token", "expired"} {
		f.refused.WithLabelValues(why)
	}
	return f
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

// serve starts the tasks that serve both handlers.
func (f *front) serve(t *tasks, o *ServeOptions, api, admin http.Handler) {
	share, limits := divideDescriptors(openFiles()), o.Clients
	limits.Refused = func(client, why string) {
		f.refused.WithLabelValues(why).Inc()
		if held, ok := f.limiter.Allow("client " + why); ok {
			f.log.Warn("client refused", "component", "http", "client", client, "why", why, "occurrences", held+1)
		}
	}
	f.serveHTTP(t, o, "--listen", f.api, clients.NewGate(api, limits), share.api, o.Clients.Proxies)
	if f.admin == nil {
		return
	}
	g := guardAdmin(admin, o.AdminListen, f.admin.Addr(), o.AdminToken, func(r *http.Request, why string) {
		if held, ok := f.limiter.Allow("admin"); ok {
			f.log.Warn("admin request refused", "component", "http", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "host", r.Host, "why", why, "occurrences", held+1)
		}
	})
	if g.token == nil && !g.bound.IsLoopback() {
		f.log.Info("admin listener without a token, reachable from other machines: serving only metrics and health", "component", "http", "address", f.admin.Addr().String(), "paths", openPaths, "to_change", "SKEIN_ADMIN_TOKEN or --admin-token-file")
	}
	f.serveHTTP(t, o, "--admin-listen", f.admin, g, share.admin, clients.Proxies{})
}

// serveHTTP serves on at most so many connections.
func (f *front) serveHTTP(t *tasks, o *ServeOptions, flag string, at net.Listener, h http.Handler, most int, proxies clients.Proxies) {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    256 << 10, // an expression of 16 KiB and 100 URIs, percent-encoded
		ErrorLog:          slog.NewLogLogger(f.log.With("component", "http").Handler(), slog.LevelDebug),
	}
	ln := Limit(srv, at, most, proxies, func() {
		if held, ok := f.limiter.Allow(flag); ok {
			f.log.Warn("connection refused: all allowed connections are busy", "component", "http", "listener", flag, "most", most, "occurrences", held+1)
		}
	})
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
		if srv.Shutdown(shutdown) != nil {
			_ = srv.Close() // cuts off the clients that are left
		}
		return nil
	})
}
