package relay

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"skein.blue/intern/dict"
	"skein.blue/internal/sim/network"
)

// An archive has the histories of all accounts, one after the other, in the order of their repos; the plan
// from any record on leads to that record; and a block is the same whenever it is asked for.
func TestArchive(t *testing.T) {
	o := network.Options{Seed: 5, Accounts: 4096, History: 12}
	a := NewArchive(o)
	server := httptest.NewServer(a)
	defer server.Close()
	get := func(method, url, body string) (int, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/xrpc/network.bsky.jetstream."+url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, b
	}
	type plan struct {
		SealedTipSeq int64
		Segments     []struct {
			Name           string
			MinSeq, MaxSeq int64
			Blocks         []struct{ First, Last int64 }
		}
	}
	planOf := func(after int64) (p plan) {
		_, b := get(http.MethodPost, "planSnapshot", fmt.Sprintf(`{"afterSeq":%d}`, after))
		if err := json.Unmarshal(b, &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	var want []string
	n := network.New(o)
	large := 0
	for account := range n.Accounts() {
		h := n.Repo(account)
		if h.Count > archiveBlock/2 {
			large++
		}
		for _, op := range n.AppendRepo(nil, &h, compareOps) {
			want = append(want, string(n.AppendDID(nil, account))+string(dict.AppendTID(nil, op.TID)))
		}
	}
	p := planOf(0)
	if p.SealedTipSeq != int64(len(want)) || n.Records() != int64(len(want)) || large == 0 {
		t.Fatalf("the plan ends at %d of %d records; %d large repos", p.SealedTipSeq, len(want), large)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	next := 0
	for _, s := range p.Segments {
		for _, run := range s.Blocks {
			for i := run.First; i <= run.Last; i++ {
				_, frame := get(http.MethodGet, fmt.Sprintf("getBlock?segment=%s&blockIndex=%d", s.Name, i), "")
				b, err := d.DecodeAll(frame, nil)
				if err != nil {
					t.Fatal(err)
				}
				rows := int(binary.LittleEndian.Uint32(b))
				var dids []byte
				at := 4 + rows*(8+8+8+1)
				var names, didLens int
				for r := range rows {
					if seq := binary.LittleEndian.Uint64(b[4+8*r:]); seq != uint64(next+r+1) {
						t.Fatalf("row %d of block %d has seq %d, want %d", r, i, seq, next+r+1)
					}
					names += int(b[at+r])
					didLens += int(binary.LittleEndian.Uint16(b[at+rows+2*r:]))
				}
				dids = b[at+rows*(1+2+1+1+4)+names:]
				rkeys := dids[didLens:]
				for r := range rows {
					l := int(binary.LittleEndian.Uint16(b[at+rows+2*r:]))
					if got := string(dids[:l]) + string(rkeys[13*r:13*r+13]); got != want[next+r] {
						t.Fatalf("record %d is %s, want %s", next+r, got, want[next+r])
					}
					dids = dids[l:]
				}
				next += rows
			}
		}
	}
	if next != len(want) {
		t.Errorf("%d records, want %d", next, len(want))
	}
	for _, after := range []int64{1, archiveBlock - 1, archiveBlock, archiveBlock + 1, int64(len(want)) - 1, int64(len(want)), 1 << 50} {
		p := planOf(after)
		if after >= int64(len(want)) {
			if len(p.Segments) > 0 {
				t.Errorf("after %d: %+v", after, p.Segments)
			}
			continue
		}
		if first := p.Segments[0].Blocks[0].First; first != after/archiveBlock {
			t.Errorf("after %d the plan begins with block %d", after, first)
		}
	}
	for _, q := range []string{"segment=seg_0000000000.jss&blockIndex=-1", "segment=seg_0000000000.jss&blockIndex=1024", "segment=seg_0000000099.jss&blockIndex=0", "segment=x&blockIndex=0", ""} {
		if code, _ := get(http.MethodGet, "getBlock?"+q, ""); code != http.StatusNotFound {
			t.Errorf("getBlock?%s: %d", q, code)
		}
	}
}

// BenchmarkArchive makes blocks of an archive; an operation is a block of 4,096 records.
func BenchmarkArchive(b *testing.B) {
	a := NewArchive(network.Options{Seed: 1, Accounts: 100_000, History: 350})
	bytes := 0
	for i := range b.N {
		bytes += len(a.block(int64(i) % (a.Records() / archiveBlock)))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/archiveBlock, "ns/record")
	b.ReportMetric(float64(bytes)/float64(b.N)/archiveBlock, "bytes/record")
}
