package app

import (
	"cmp"
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
	exampleBytes    = 32 << 20
	exampleTime     = 5 * time.Second
)

// How long examples are good, and how soon to look again if there are none.
const (
	examplesEvery = 10 * time.Minute
	noExamples    = 15 * time.Second
)

var followKind, likeKind = kinds.ByName("follow").Kind, kinds.ByName("like").Kind

var errEnoughRead = errors.New("app: read limit for examples reached")

// findExamples looks for examples for the page until ctx ends.
func (s *server) findExamples(ctx context.Context) error {
	for {
		all := s.examples(ctx)
		wait := noExamples
		if len(all) > 0 {
			s.found.Store(&all)
			wait = examplesEvery
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// examples returns queries about accounts and posts of this store that have answers.
func (s *server) examples(ctx context.Context) (all []page.Example) {
	ctx, cancel := context.WithTimeout(ctx, exampleTime)
	defer cancel()
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

// examplesOf looks for two accounts with common followers, and for an account whose follows like something.
func examplesOf(s *ask.View, now time.Time) (all []page.Example, err error) {
	accounts, err := s.SomeAccounts(exampleAccounts)
	if err != nil {
		return nil, err
	}
	var follows [][]uint64 // of each account
	stars, both := tally{}, tally{}
	for _, id := range accounts {
		ids, err := s.AppendSubjects(nil, followKind, id, ask.Window{})
		if err != nil {
			return nil, fmt.Errorf("app: %w", err)
		}
		ids = slices.DeleteFunc(ids, func(id uint64) bool { return s.IsHidden(dict.ID(id)) })
		slices.Sort(ids)
		if ids = slices.Compact(ids); len(ids) > exampleFollows {
			ids = nil
		}
		stars.add(ids)
		follows = append(follows, ids)
	}
	star := stars.most()
	most := 0 // the index of an account that follows many
	for i, ids := range follows {
		if slices.Contains(ids, star) {
			both.add(ids)
		}
		if len(ids) > len(follows[most]) {
			most = i
		}
	}
	if star == 0 {
		return nil, nil
	}
	delete(both, star)
	names := [3]string{}
	for i, id := range [3]uint64{uint64(accounts[most]), star, both.most()} {
		if names[i], err = nameOf(s, dict.DID, id); err != nil {
			return nil, err
		}
	}
	if names[2] != "" {
		all = append(all, page.Example{Title: "Who follows both of these accounts?", Q: "intersect(followers(" + names[1] + "), followers(" + names[2] + "))"})
	}
	all = append(all, page.Example{Title: "An account", Q: names[1]})
	for _, w := range []struct {
		since  string
		window ask.Window
	}{{", since=24h", read.WindowOf(now.Add(-24*time.Hour).UnixMicro(), 0)}, {}} {
		post, err := likedBy(s, follows[most], w.window)
		if err != nil {
			return all, err
		}
		if post != "" {
			return append(all,
				page.Example{Title: "Posts liked by the accounts that this account follows", Q: "rank(of=follows(" + names[0] + "), via=likes" + w.since + ")"},
				page.Example{Title: "Who liked this post, among the accounts that this account follows?", Q: "intersect(follows(" + names[0] + "), likers(" + post + "))"},
				page.Example{Title: "A post", Q: post}), nil
		}
	}
	return all, nil
}

// likedBy returns the post that most of the accounts like, "" if they like none.
func likedBy(s *ask.View, accounts []uint64, w ask.Window) (string, error) {
	likes := tally{}
	for _, id := range accounts {
		ids, err := s.AppendSubjects(nil, likeKind, dict.ID(id), w)
		if err != nil {
			return "", fmt.Errorf("app: %w", err)
		}
		likes.add(ids)
	}
	for range 8 { // the first may be records that are not posts
		id := likes.most()
		if uri, err := nameOf(s, dict.URI, id); err != nil || strings.Contains(uri, "/app.bsky.feed.post/") {
			return uri, err
		}
		delete(likes, id)
	}
	return "", nil
}

// A tally counts how many lists each id is in.
type tally map[uint64]int

func (t tally) add(ids []uint64) {
	for _, id := range ids {
		t[id]++
	}
}

// most returns the id that is in most of the lists, the lowest if several tie; 0 if there are none.
func (t tally) most() uint64 {
	if len(t) == 0 {
		return 0
	}
	return slices.MaxFunc(slices.Collect(maps.Keys(t)), func(a, b uint64) int { return cmp.Or(cmp.Compare(t[a], t[b]), cmp.Compare(b, a)) })
}

// nameOf returns the string of an id, "" for 0.
func nameOf(s *ask.View, ns dict.Namespace, id uint64) (name string, err error) {
	if id == 0 {
		return "", nil
	}
	err = s.Strings(ns, []dict.ID{dict.ID(id)}, func(_ int, str []byte) error { name = string(str); return nil })
	if err != nil {
		return "", fmt.Errorf("app: reading the name of an example: %w", err)
	}
	return name, nil
}
