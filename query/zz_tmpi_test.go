package query

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"skein/internal/idset"
)

var _ = context.Background
var _ = httptest.NewServer
var _ = url.Values{}
var _ = strings.Repeat
var _ sync.Mutex

func TestZZMem(t *testing.T) {
	// 2M random members out of 1G ids: what a forward set of a heavy liker takes.
	var m0, m1 runtime.MemStats
	for _, n := range []int{500_000, 2_000_000} {
		ids := make([]uint64, n)
		for i := range ids {
			blk := rand.Uint64N(16384)
			ids[i] = blk<<26 | rand.Uint64N(65536)
		}
		runtime.GC()
		runtime.ReadMemStats(&m0)
		s := time.Now()
		set := idset.FromUnsorted(ids)
		d := time.Since(s)
		ids = nil
		runtime.GC()
		runtime.ReadMemStats(&m1)
		fmt.Println(n, set.Len(), set.Bytes(), int64(m1.HeapAlloc)-int64(m0.HeapAlloc)+int64(8*n), d)
		runtime.KeepAlive(set)
	}
}
