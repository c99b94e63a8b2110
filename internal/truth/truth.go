// Package truth reads the truth files that go with recorded streams, and
// compares a running server with them over HTTP: every set of every account
// and post, in pages. It shares no code with the index.
package truth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
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

// Read reads a truth file.
func Read(path string) (*Truth, error) {
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

// expected returns all sets that are to be asked for, by expression. The
// file's views leave out hidden authors; subjects that are hidden are left out
// here, as semantics.md 8 says.
func (t *Truth) expected() map[string][]string {
	want := map[string][]string{}
	views := t.Views.Active
	for did := range t.Accounts {
		want["follows("+did+")"] = t.active(views["following"][did])
		want["followers("+did+")"] = views["followers"][did]
		want["likes("+did+")"] = views["liked"][did]
		want["blocks("+did+")"] = t.active(views["blocking"][did])
	}
	posts := slices.Clone(t.LivePosts)
	for _, view := range []string{"likers", "reposters"} {
		for uri := range views[view] {
			posts = append(posts, uri)
		}
	}
	for _, uri := range posts {
		want["likers("+uri+")"] = views["likers"][uri]
		want["reposters("+uri+")"] = views["reposters"][uri]
	}
	return want
}

func (t *Truth) active(dids []string) (out []string) {
	for _, did := range dids {
		if a, known := t.Accounts[did]; !known || a.Status == "active" {
			out = append(out, did)
		}
	}
	return out
}

// Compare asks the server at base for every set, in pages of limit, and
// returns the differences, and how many sets had members.
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

// Get gets JSON.
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
