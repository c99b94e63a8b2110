package oracle

// The truth files of recorded streams, and the comparison of a running server with them over HTTP:
// every set of every account and post, in pages (here), and the methods (methods.go).

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Truth is a truth file.
type Truth struct {
	FinalSeq int64 `json:"finalSeq"`
	Counts   struct{ Like, Follow, Repost, Block int64 }
	Accounts map[string]struct {
		Status string `json:"status"`
	} `json:"accounts"`
	LivePosts []string          `json:"livePosts"`
	Records   map[string]Record `json:"records"`
	Views     struct {
		Active map[string]map[string][]string `json:"active"`
	} `json:"views"`
}

// ReadTruth reads a truth file.
func ReadTruth(path string) (*Truth, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := &Truth{}
	if err := json.Unmarshal(b, t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// expected returns all sets to ask for, by expression: those of every account, and those
// about every post, as the oracle computes them from the records.
func (t *Truth) expected() map[string][]string {
	want := map[string][]string{}
	v := t.facts()
	subjects := map[dict.Namespace][]string{dict.DID: slices.Collect(maps.Keys(t.Accounts)), dict.URI: slices.Clone(t.LivePosts)}
	for _, sets := range v.Reverse {
		for of := range sets {
			if strings.HasPrefix(of, "at://") {
				subjects[dict.URI] = append(subjects[dict.URI], of)
			}
		}
	}
	for _, k := range kinds.All {
		if !k.HasSets() {
			continue
		}
		for did := range t.Accounts {
			want[k.Forward+"("+did+")"] = v.Forward[k.Name][did]
		}
		for _, of := range subjects[k.To.Is()] {
			want[k.Reverse+"("+of+")"] = v.Reverse[k.Name][of]
		}
	}
	return want
}

// RecordCounts returns the number of live records of each kind, by name.
func (t *Truth) RecordCounts() map[string]int64 {
	counts := map[string]int64{}
	for _, k := range kinds.All {
		counts[k.Name] = 0
	}
	t.edges(func(e Edge) bool { counts[e.Kind]++; return true })
	return counts
}

// Check compares the oracle's sets with those in the file, which the recorder of the
// stream computed. It returns the differences.
func (t *Truth) Check() (differences []string) {
	v := t.facts()
	counts := t.RecordCounts()
	for kind, want := range map[string]int64{"like": t.Counts.Like, "follow": t.Counts.Follow, "repost": t.Counts.Repost, "block": t.Counts.Block} {
		if counts[kind] != want {
			differences = append(differences, fmt.Sprintf("the file claims %d %s records, and has %d", want, kind, counts[kind]))
		}
	}
	active := func(dids []string) []string {
		return slices.DeleteFunc(slices.Clone(dids), t.hidden)
	}
	for view, sets := range map[string]map[string][]string{
		"following": v.Forward["follow"], "followers": v.Reverse["follow"], "liked": v.Forward["like"],
		"likers": v.Reverse["like"], "reposters": v.Reverse["repost"], "blocking": v.Forward["block"],
	} {
		for of, listed := range t.Views.Active[view] {
			if view == "following" || view == "blocking" { // the file's sets leave out only hidden authors
				listed = active(listed)
			}
			slices.Sort(listed)
			if !slices.Equal(listed, sets[of]) {
				differences = append(differences, fmt.Sprintf("%s of %s: the file has %v, the oracle %v", view, of, listed, sets[of]))
			}
		}
	}
	return differences
}

// Compare asks the server at base for every set, in pages of limit. It returns the
// differences, and the number of non-empty sets.
func (t *Truth) Compare(ctx context.Context, base string, limit int) (differences []string, nonEmpty int, err error) {
	for set, want := range t.expected() {
		got, total, err := Members(ctx, base, set, limit)
		if err != nil {
			return nil, 0, err
		}
		want = slices.Clone(want)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || total != len(want) {
			differences = append(differences, fmt.Sprintf("%s: got %d (total %d), want %d\n got %q\nwant %q", set, len(got), total, len(want), got, want))
		}
		if len(want) > 0 {
			nonEmpty++
		}
	}
	return differences, nonEmpty, nil
}

// Members asks for a whole set in pages of limit.
func Members(ctx context.Context, base, set string, limit int) (all []string, total int, err error) {
	for cursor := ""; ; {
		var page struct {
			Total   int      `json:"total"`
			Members []string `json:"members"`
			Cursor  string   `json:"cursor"`
		}
		q := url.Values{"set": {set}, "limit": {fmt.Sprint(limit)}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		if err := Get(ctx, base+"/xrpc/blue.skein.graph.query?"+q.Encode(), &page); err != nil {
			return nil, 0, err
		}
		if len(page.Members) > limit {
			return nil, 0, fmt.Errorf("%s: a page of %d, limit %d", set, len(page.Members), limit)
		}
		all = append(all, page.Members...)
		if cursor = page.Cursor; cursor == "" {
			return all, page.Total, nil
		}
	}
}

// Get requests JSON.
func Get(ctx context.Context, address string, into any) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
