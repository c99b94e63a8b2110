package query

import (
	"context"
	"math"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// The bounds of histogram.
const (
	maxBuckets = 1000
	fewBuckets = 120 // without bucket
	minBucket  = time.Minute
	maxBucket  = 30 * 24 * time.Hour
)

// chosenBuckets are the lengths that histogram chooses from if the query has no bucket.
var chosenBuckets = []time.Duration{
	minBucket, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, maxBucket,
}

type histogramBucket struct {
	Start string `json:"start"`
	Count uint64 `json:"count"`
}

// histogramAnswer is an answer of histogram.
type histogramAnswer struct {
	Type  string `json:"type"`
	Total uint64 `json:"total"`
	counted
	caveats
}

func (a *histogramAnswer) table() *table { return tableOf(a.Buckets, "", a.Total) }

// histogram counts the members of a set by the times of the records that make them members.
func histogram(ctx context.Context, q *call) (any, error) {
	e, err := q.Set()
	if err != nil {
		return nil, err
	}
	if e.Root.Source() == nil {
		return nil, xrpc.Invalid("histogram needs a set whose members come from records, as order=newest of list does")
	}
	now := time.Now()
	window := q.Window(now)
	bucket, ok := language.ParseAge(q.Values.Get("bucket")) // 0 without it
	if q.Values.Has("bucket") && (!ok || bucket < minBucket || bucket > maxBucket || bucket%time.Second != 0) {
		return nil, xrpc.Invalid("parameter bucket is %q; it must be a duration from 1m to 30d, in whole seconds, such as 15m, 1h or 7d", language.Brief(q.Values.Get("bucket")))
	}
	out := histogramAnswer{Type: e.Type().String()}
	read := within(e.Root, window)
	err = q.evaluate(ctx, e, evidence.Of(&read), &out.caveats, func(v *algebra.Evaluation) error {
		set, _, err := v.Result()
		if err != nil {
			return err
		}
		times, err := v.Times(set, window, now)
		if err != nil {
			return err
		}
		out.Total = uint64(len(times))
		end, all := uint64(now.UnixMicro()), q.Values.Has("since")
		if q.Values.Has("until") {
			end = math.MaxUint64
		}
		if out.counted = countByTime(times, end, bucket, all); out.Earlier > 0 && all {
			return xrpc.Invalid("the records since %s span more than %d buckets of %d s; use a longer bucket, or a later since", q.Values.Get("since"), maxBuckets, out.BucketSeconds)
		}
		return nil
	})
	return &out, err
}

// within returns a set with the windows of the records that matter if only those in w count. They are narrower in single sets and in unions of these:
// in other sets, records from before w decide who is a member.
func within(n language.Node, w language.Window) language.Node {
	if n.Op.IsSet() && !w.All() && (n.Window.All() || n.Window.From < w.From) {
		n.Window = w // of the two, the one that begins later
	}
	if n.Op == language.OpUnion {
		n.Args = slices.Clone(n.Args)
		for i := range n.Args {
			n.Args[i] = within(n.Args[i], w)
		}
	}
	return n
}

// counted has the numbers of records in buckets of time.
type counted struct {
	BucketSeconds int64             `json:"bucketSeconds"`
	Buckets       []histogramBucket `json:"buckets"`
	Earlier       uint64            `json:"earlier,omitempty"` // before the first bucket
	Later         uint64            `json:"later,omitempty"`   // dated ahead of the present
	Undated       uint64            `json:"undated,omitempty"`
}

// countByTime counts times, which ascend, in buckets of a length. Buckets start at whole multiples of
// their length after 1970-01-01T00:00:00Z. The last one has the last time before end, the first one
// the first time, or is the earliest of maxBuckets. If the length is 0, countByTime chooses the
// shortest one by which fewBuckets have 99 % of the times, or all of them: record keys are chosen by
// clients, and one that names a time decades ago must not flatten all others.
func countByTime(times []uint64, end uint64, length time.Duration, all bool) counted {
	dated, _ := slices.BinarySearch(times, ask.Timeless)
	past, _ := slices.BinarySearch(times[:dated], end)
	c := counted{Buckets: []histogramBucket{}, Undated: uint64(len(times) - dated), Later: uint64(dated - past)}
	times = times[:past]
	most := uint64(maxBuckets)
	if length == 0 {
		from := len(times) / 100
		if all {
			from = 0
		} else {
			most = fewBuckets
		}
		for _, length = range chosenBuckets {
			micros := uint64(length / time.Microsecond)
			if len(times) == 0 || times[len(times)-1]/micros-times[from]/micros < fewBuckets {
				break
			}
		}
	}
	c.BucketSeconds = int64(length / time.Second)
	if len(times) == 0 {
		return c
	}
	micros := uint64(length / time.Microsecond)
	first, last := times[0]/micros, times[len(times)-1]/micros
	if last-first >= most {
		first = last - most + 1
	}
	earlier, _ := slices.BinarySearch(times, first*micros)
	c.Earlier = uint64(earlier)
	for i := first; i <= last; i++ {
		c.Buckets = append(c.Buckets, histogramBucket{Start: time.UnixMicro(int64(i * micros)).UTC().Format(time.RFC3339)})
	}
	for _, t := range times[earlier:] {
		c.Buckets[t/micros-first].Count++
	}
	return c
}
