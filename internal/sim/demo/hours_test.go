package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/sim/synth"
)

// ledger tracks every existing record of a network, as an index would.
type ledger struct {
	t       *testing.T
	records map[record]string // their subjects
	follows map[string]int    // by actor
	fans    map[string]int    // follows by subject
	likes   map[string]int    // by post
	active  map[string]int    // likes by actor
	posts   []string
	deleted int
}

type record struct {
	who              int
	collection, rkey string
}

func (g *ledger) apply(n *Network, a act) {
	key := record{a.who, a.collection, a.rkey}
	by, subject := 1, ""
	if a.record == nil {
		var known bool
		if subject, known = g.records[key]; !known {
			g.t.Fatalf("%v is deleted but was never created", key)
		}
		delete(g.records, key)
		by = -1
		g.deleted++
	} else {
		if _, known := g.records[key]; known {
			g.t.Fatalf("%v is created twice", key)
		}
		for _, p := range a.record {
			if p.Key != "subject" {
				continue
			}
			switch v := p.Value.(type) {
			case string:
				subject = v
			case synth.Map:
				subject = v[1].Value.(string) //nolint:errcheck // the form of every record's subject
			}
		}
	}
	switch a.collection {
	case "app.bsky.feed.post":
		g.posts = append(g.posts, n.posts[len(n.posts)-1].uri)
		return // posts are never deleted
	case "app.bsky.graph.follow":
		g.follows[n.dids[a.who]] += by
		g.fans[subject] += by
	case "app.bsky.feed.like":
		g.likes[subject] += by
		g.active[n.dids[a.who]] += by
	}
	if by > 0 {
		g.records[key] = subject
	}
}

// spread returns the median, 99th percentile and maximum of the counts of all keys.
func spread(counts map[string]int, keys []string) (p50, p99, most int) {
	var all []int
	for _, k := range keys {
		all = append(all, counts[k])
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100], all[len(all)-1]
}

// After ten hours the network is as plausible as after the first: most people follow a few dozen
// accounts, nobody follows or is followed by most of the network, posts have the likes of a small
// network, and the network's memory does not grow.
func TestNetworkStaysPlausible(t *testing.T) {
	n := New(1)
	g := &ledger{t: t, records: map[record]string{}, follows: map[string]int{}, fans: map[string]int{}, likes: map[string]int{}, active: map[string]int{}}
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for range pastOps {
		g.apply(n, n.step(now))
		now = now.Add(pastHours * time.Hour / pastOps)
	}
	within := func(hour int, what string, got, low, high int) {
		t.Helper()
		if got < low || got > high {
			t.Errorf("after %d hours %s: %d, plausible are %d to %d", hour, what, got, low, high)
		}
	}
	records := 0
	for hour := range 11 {
		p50, p99, most := spread(g.follows, n.dids)
		fans50, fans99, star := spread(g.fans, n.dids)
		likes50, likes99, hit := spread(g.likes, g.posts[:len(g.posts)-newPosts])
		_, _, busiest := spread(g.active, n.dids)
		t.Logf("after %2d hours, p50/p99/most: follows %d/%d/%d, followers %d/%d/%d, likes of a post %d/%d/%d, likes of one account %d; %d records deleted", hour, p50, p99, most, fans50, fans99, star, likes50, likes99, hit, busiest, g.deleted)
		within(hour, "the median of follows", p50, 5, 60)
		within(hour, "p99 of follows", p99, 40, people/10)
		within(hour, "the most follows", most, 100, people/5)
		within(hour, "the median of followers", fans50, 3, 60)
		within(hour, "the followers of the most popular", star, people/25, people/4)
		within(hour, "the median of a post's likes", likes50, 1, 10)
		within(hour, "p99 of a post's likes", likes99, 10, people/20)
		within(hour, "the most likes of a post", hit, 20, people/10)
		within(hour, "the most likes of one account", busiest, 10, 300+300*hour)
		switch hour {
		case 5:
			records = remembered(n)
		case 10:
			if later := remembered(n); later > records+records/5 {
				t.Errorf("the network's memory grows without bound: %d records after 5 hours, %d after 10", records, later)
			}
			continue
		}
		for range 3600 * perSecond {
			g.apply(n, n.step(now))
			now = now.Add(time.Second / perSecond)
		}
	}
	if !strings.HasPrefix(n.highlights().Post, "at://") {
		t.Error("no highlights after ten hours")
	}
}

// remembered counts the records that a network keeps in memory.
func remembered(n *Network) (records int) {
	for i := range people {
		records += len(n.follows[i].list) + len(n.blocks[i].list)
	}
	for _, p := range n.posts {
		records += 1 + len(p.likes.list) + len(p.reposts.list)
	}
	return records
}
