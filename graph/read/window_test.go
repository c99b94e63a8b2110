package read

import (
	"testing"

	"skein.blue/graph/format"
)

// A window that two windows make includes a record if and only if both do. None of the ends of the
// windows here may be lost, and the empty window must not become the zero Window, which includes all.
func TestWindowsTogether(t *testing.T) {
	windows := []Window{{}, {EndOfTime, EndOfTime}, {0, EndOfTime}, {0, 1}, {1, 3}, {2, 5}, {3, 4}, {5, EndOfTime}}
	paths := []format.Path{{Raw: []byte("self")}, {TID: EndOfTime}}
	for tid := range uint64(7) {
		paths = append(paths, format.Path{TID: tid})
	}
	for _, a := range windows {
		for _, b := range windows {
			for _, p := range paths {
				if got, want := a.And(b).Has(p), a.Has(p) && b.Has(p); got != want {
					t.Errorf("%v and %v = %v: includes %v: %t, want %t", a, b, a.And(b), p, got, want)
				}
			}
		}
	}
}

func TestWindowAround(t *testing.T) {
	const width = 1 << format.BucketShift
	for _, bucket := range []uint64{0, 1, 2, 1607, EndOfTime/width - 2, EndOfTime/width - 1} {
		for _, tid := range []uint64{bucket * width, bucket*width + width/3, bucket*width + width - 1} {
			w := WindowAround(tid)
			for _, at := range []uint64{0, (bucket - 2) * width, (bucket-1)*width - 1, (bucket - 1) * width, tid, (bucket+2)*width - 1, (bucket + 2) * width, EndOfTime - 1, EndOfTime} {
				of := at / width
				if got, want := w.Has(format.Path{TID: at}), at < EndOfTime && of+1 >= bucket && of <= bucket+1; got != want {
					t.Errorf("around %d, in bucket %d: %v includes %d, in bucket %d: %t, want %t", tid, bucket, w, at, of, got, want)
				}
			}
		}
	}
}
