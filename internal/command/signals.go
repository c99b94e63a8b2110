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

// MostStopping is how long the end may take after the first signal. A store that
// cannot write, or is still being opened, does not hold it up: what was committed
// is kept.
var MostStopping = 9500 * time.Millisecond

// Stopping is how signals end a command.
type Stopping struct {
	hangup atomic.Pointer[func()] // what SIGHUP does instead of ending
}

// OnHangup has SIGHUP call fn instead of ending the process.
func (s *Stopping) OnHangup(fn func()) { s.hangup.Store(&fn) }

// Listen returns a context that SIGINT, SIGTERM and SIGHUP end. A second signal
// ends the process at once, and so does time.
func (s *Stopping) Listen(stderr io.Writer) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // else nohup said so
		stops = append(stops, syscall.SIGHUP)
	}
	signal.Notify(signals, stops...)
	go func() {
		for sig := range signals {
			if fn := s.hangup.Load(); sig == syscall.SIGHUP && fn != nil {
				(*fn)()
				continue
			}
			cancel()
			signal.Reset(os.Interrupt, syscall.SIGTERM) // the next one ends the process
			signal.Ignore(syscall.SIGHUP)               // and this one adds nothing
			time.AfterFunc(MostStopping, func() {
				fmt.Fprintln(stderr, "not stopped ten seconds after the signal, so the process ends now; what was committed is kept, and the rest is read again")
				os.Exit(ExitFailed)
			})
			return
		}
	}()
	return ctx
}
