package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/page"
)

// Bounds on the search for examples.
const (
	exampleAccounts = 400  // accounts to look at
	exampleFollows  = 1000 // accounts that follow more are skipped
	exampleFans     = 8    // accounts whose follows' likes are read
	exampleBytes    = 32 << 20
	exampleTime     = 5 * time.Second
)

var followKind, likeKind = kinds.ByName("follow").Kind, kinds.ByName("like").Kind

var errEnoughRead = errors.New("app: read limit for examples reached")

// examples returns queries about accounts and posts of this store that have answers.
func (s *server) examples() []page.Example {
	ctx, cancel := context.WithTimeout(context.Background(), exampleTime)
	defer cancel()
	var all []page.Example
	read := 0
	err := s.Graph.ViewCharged(ctx, func(cost int) error {
		if read += cost; read > exampleBytes {
			return errEnoughRead
		}
		return ctx.Err()
	}, func(s *ask.View) (err error) {
		all, err = examplesOf(s, time.Now())
		return err
	})
	if err != nil {
		s.log.Debug("cannot find examples for the page", "error", err)
	}
	return all
}

// examplesOf looks for two accounts with common followers, an account that follows many, and a
// post that some of those like.
func examplesOf(s *ask.View, now time.Time) (all []page.Example, err error) {
	some, err := s.SomeAccounts(exampleAccounts)
	if err != nil {
		return nil, err
	}
	var follows [][]uint64
	var fans []fan
	for _, id := range some {
		ids, err := s.AppendSubjects(nil, followKind, id, ask.Window{})
		if err != nil {
			return nil, fmt.Errorf("app: %w", err)
		}
		ids = slices.DeleteFunc(ids, func(id uint64) bool { return s.IsHidden(dict.ID(id)) })
		slices.Sort(ids)
		if ids = slices.Compact(ids); len(ids) > exampleFollows {
			continue
		}
		follows = append(follows, ids)
		fans = append(fans, fan{id, ids})
	}
	star, followers := most(follows)
	if followers > 0 {
		name, err := nameOf(s, dict.DID, star)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Example{Title: "An account", Q: name})
		with := slices.DeleteFunc(slices.Clone(follows), func(ids []uint64) bool { return !slices.Contains(ids, star) })
		if second, n := most(with, star); n > 0 {
			other, err := nameOf(s, dict.DID, second)
			if err != nil {
				return nil, err
			}
			all = slices.Insert(all, 0, page.Example{Title: "Who follows both of these accounts?", Q: "intersect(followers(" + name + "), followers(" + other + "))"})
		}
	}
	slices.SortStableFunc(fans, func(a, b fan) int { return len(b.follows) - len(a.follows) })
	for _, f := range fans[:min(exampleFans, len(fans))] {
		more, err := likedExamples(s, f, now)
		if err != nil || len(more) > 0 {
			return append(all, more...), err
		}
	}
	return all, nil
}

// fan is an account that follows others.
type fan struct {
	id      dict.ID
	follows []uint64
}

// likedExamples returns the examples about the likes of the accounts that f follows: today's, or
// all if there are none today.
func likedExamples(s *ask.View, f fan, now time.Time) ([]page.Example, error) {
	name, err := nameOf(s, dict.DID, uint64(f.id))
	if err != nil {
		return nil, err
	}
	for _, period := range []struct {
		when, since string
		window      ask.Window
	}{
		{" in the last 24 hours", ", since=24h", read.WindowOf(now.Add(-24*time.Hour).UnixMicro(), 0)},
		{"", "", ask.Window{}},
	} {
		uri, err := likedBy(s, f.follows, period.window)
		if err != nil {
			return nil, err
		}
		if uri != "" {
			return []page.Example{
				{Title: "Posts liked" + period.when + " by the accounts that this account follows", Q: "rank(of=follows(" + name + "), via=likes" + period.since + ")"},
				{Title: "Who liked this post, among the accounts that this account follows?", Q: "intersect(follows(" + name + "), likers(" + uri + "))"},
				{Title: "A post", Q: uri},
			}, nil
		}
	}
	return nil, nil
}

// likedBy returns the post that most of the accounts like, "" if they like none.
func likedBy(s *ask.View, accounts []uint64, w ask.Window) (string, error) {
	var likes [][]uint64
	for _, id := range accounts {
		ids, err := s.AppendSubjects(nil, likeKind, dict.ID(id), w)
		if err != nil {
			return "", fmt.Errorf("app: %w", err)
		}
		likes = append(likes, ids)
	}
	var others []uint64 // liked records that are not posts
	for range exampleFans {
		id, n := most(likes, others...)
		if n == 0 {
			break
		}
		if uri, err := nameOf(s, dict.URI, id); err != nil || strings.Contains(uri, "/app.bsky.feed.post/") {
			return uri, err
		}
		others = append(others, id)
	}
	return "", nil
}

// most returns the id that is in most of the lists, except the ids in but; the lowest if several
// tie.
func most(lists [][]uint64, but ...uint64) (id uint64, n int) {
	counts := map[uint64]int{}
	for _, ids := range lists {
		for _, id := range ids {
			counts[id]++
		}
	}
	for _, id := range but {
		delete(counts, id)
	}
	for _, candidate := range slices.Sorted(maps.Keys(counts)) {
		if counts[candidate] > n {
			id, n = candidate, counts[candidate]
		}
	}
	return id, n
}

func nameOf(s *ask.View, ns dict.Namespace, id uint64) (name string, err error) {
	err = s.Strings(ns, []dict.ID{dict.ID(id)}, func(_ int, str []byte) error { name = string(str); return nil })
	if err != nil {
		return "", fmt.Errorf("app: reading the name of an example: %w", err)
	}
	return name, nil
}
