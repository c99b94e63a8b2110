package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// MostStopping is how long shutdown may take after the first signal. A store that cannot
// write, or is still opening, does not delay it: committed data is safe.
var MostStopping = 9500 * time.Millisecond

// Stopping decides how signals end a command.
type Stopping struct {
	hangup atomic.Pointer[func()]               // what SIGHUP does instead of ending the process
	drain  atomic.Pointer[func() time.Duration] // what the first signal does before it ends the context
}

// OnHangup makes SIGHUP call fn instead of ending the process.
func (s *Stopping) OnHangup(fn func()) { s.hangup.Store(&fn) }

// OnDrain makes the first SIGINT or SIGTERM call fn, and end the context after the time that fn
// returns, or at the second signal.
func (s *Stopping) OnDrain(fn func() time.Duration) { s.drain.Store(&fn) }

// awaitDrain calls the function of OnDrain and waits.
func (s *Stopping) awaitDrain(signals <-chan os.Signal) {
	fn := s.drain.Load()
	if fn == nil {
		return
	}
	for over := time.After((*fn)()); ; {
		select {
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				return
			}
		case <-over:
			return
		}
	}
}

// Listen returns a context that SIGINT, SIGTERM and SIGHUP end. The process exits at once on the
// next signal after that, or when MostStopping is over.
func (s *Stopping) Listen(stderr io.Writer) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		stops = append(stops, syscall.SIGHUP)
	}
	signal.Notify(signals, stops...)
	go func() {
		for sig := range signals {
			if fn := s.hangup.Load(); sig == syscall.SIGHUP && fn != nil {
				(*fn)()
				continue
			}
			s.awaitDrain(signals)
			cancel()
			signal.Reset(os.Interrupt, syscall.SIGTERM) // the next one ends the process
			signal.Ignore(syscall.SIGHUP)               // this one no longer matters
			time.AfterFunc(MostStopping, func() {
				fmt.Fprintln(stderr, "not stopped ten seconds after the signal: exiting now; committed data is safe, the rest will be read again")
				os.Exit(ExitFailed)
			})
			return
		}
	}()
	return ctx
}
