package relay

import (
	"net/http"
	"sort"
	"strconv"
	"sync"

	"skein.blue/consumer/wire"
	"skein.blue/internal/sim/synth"
)

// Recorded serves given messages, and misbehaves as tests need. Of the messages it reads
// only the sequence numbers. It implements http.Handler.
type Recorded struct {
	// DropAfter, if set, is called at each connection, and returns after how many
	// messages to cut it. 0: never. Set it before the first connection.
	DropAfter func() int
	// First, if set, is sent before anything else on each connection; with FirstOnce,
	// only on the first connection, which then ends, for example after an error frame.
	First     []byte
	FirstOnce bool
	// Text, if set, is sent as a text message at the start of each connection.
	Text string

	mu          sync.Mutex // guards the fields below
	frames      []frame
	more        chan struct{} // closed when frames grows
	connections int
	cursors     []string // as requested, in the order of the connections
}

type frame struct {
	seq  int64
	data []byte
}

// NewRecorded returns a relay with these messages. A message without a sequence number
// follows the one before it.
func NewRecorded(frames [][]byte) *Recorded {
	r := &Recorded{more: make(chan struct{})}
	r.Append(frames...)
	return r
}

// Append adds messages, which connected clients receive live.
func (r *Recorded) Append(frames ...[]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var m wire.Message
	for _, f := range frames {
		seq := r.last()
		if wire.Parse(f, &m) == nil && m.Seq > 0 {
			seq = max(seq, int64(m.Seq))
		}
		r.frames = append(r.frames, frame{seq, f})
	}
	close(r.more)
	r.more = make(chan struct{})
}

// last returns the newest sequence number. r.mu is held.
func (r *Recorded) last() int64 {
	if n := len(r.frames); n > 0 {
		return r.frames[n-1].seq
	}
	return 0
}

// Connections returns the number of connections, and the cursors that they requested, ""
// for none.
func (r *Recorded) Connections() (n int, cursors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connections, append([]string(nil), r.cursors...)
}

// ServeHTTP implements http.Handler.
func (r *Recorded) ServeHTTP(w http.ResponseWriter, req *http.Request) { synth.Serve(w, req, r) }

// Subscribe implements synth.Stream.
func (r *Recorded) Subscribe(cursor int64, hasCursor bool) synth.Feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connections++
	f := &recordedFeed{r: r, first: r.connections == 1, next: len(r.frames), gone: make(chan struct{})}
	asked := ""
	if hasCursor {
		asked = strconv.FormatInt(cursor, 10)
		f.future = cursor > r.last()
		f.next = sort.Search(len(r.frames), func(i int) bool { return r.frames[i].seq > cursor })
	}
	r.cursors = append(r.cursors, asked)
	return f
}

// recordedFeed is the subscription of one connection.
type recordedFeed struct {
	r      *Recorded
	next   int
	begun  bool
	first  bool // of the first connection
	future bool // its cursor is in the future
	cut    bool // the connection ends after left messages
	left   int
	gone   chan struct{}
}

// Next implements synth.Feed.
func (f *recordedFeed) Next(s *synth.Sender) error {
	if !f.begun {
		f.begun = true
		if f.r.Text != "" {
			s.AppendText(f.r.Text)
		}
		if f.r.First != nil && (!f.r.FirstOnce || f.first) {
			s.Append(func(dst []byte) []byte { return append(dst, f.r.First...) })
			if f.r.FirstOnce {
				return synth.ErrEnd
			}
		}
		if f.future {
			return &synth.Refusal{Name: "FutureCursor", Text: "Cursor in the future."}
		}
		if f.r.DropAfter != nil {
			f.left = f.r.DropAfter()
			f.cut = f.left > 0
		}
		return nil
	}
	const atOnce = 48
	for {
		f.r.mu.Lock()
		some, more := f.r.frames[f.next:min(len(f.r.frames), f.next+atOnce)], f.r.more
		f.r.mu.Unlock()
		if len(some) == 0 {
			select {
			case <-more:
				continue
			case <-f.gone:
				return synth.ErrEnd
			}
		}
		for _, m := range some {
			s.Append(func(dst []byte) []byte { return append(dst, m.data...) })
			f.next++
			if f.left--; f.cut && f.left == 0 {
				return synth.ErrEnd
			}
		}
		return nil
	}
}

// Stalled implements synth.Feed.
func (f *recordedFeed) Stalled() bool { return false }

// Close implements synth.Feed.
func (f *recordedFeed) Close() { close(f.gone) }
