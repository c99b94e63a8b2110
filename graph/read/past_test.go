package read

import (
	"reflect"
	"testing"
	"time"

	"skein.blue/graph/format"
)

// TestBothBackfills: of the partitions of two rows holds what holds for both, and what is under way for one goes on for both, from where
// neither misses anything. The order does not matter.
func TestBothBackfills(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	roster := func(after time.Duration) format.Roster {
		return format.Roster{AsOf: at.Add(after), Source: format.RosterRepos}
	}
	hosts := func(cursors ...string) map[string]format.HostBackfill {
		all := map[string]format.HostBackfill{}
		for i, c := range cursors {
			all[string(rune('a'+i))] = format.HostBackfill{Cursor: c, Done: c == "end"}
		}
		return all
	}
	for name, c := range map[string]struct{ a, b, want format.Backfill }{
		"both know all":             {format.Backfill{Roster: roster(1)}, format.Backfill{Roster: roster(2)}, format.Backfill{Roster: roster(1)}},
		"one knows nothing":         {format.Backfill{Roster: roster(1)}, format.Backfill{}, format.Backfill{}},
		"an archive":                {format.Backfill{Archive: "x", Begun: at}, format.Backfill{Roster: roster(1)}, format.Backfill{Archive: "x", Begun: at}},
		"the same archive":          {format.Backfill{Archive: "x", Begun: at}, format.Backfill{Archive: "x", Begun: at.Add(1)}, format.Backfill{Archive: "x", Begun: at.Add(1)}},
		"lists, as far":             {format.Backfill{Hosts: hosts("5", "end")}, format.Backfill{Hosts: hosts("5", "end")}, format.Backfill{Hosts: hosts("5", "end")}},
		"lists, not as far":         {format.Backfill{Hosts: hosts("5", "end")}, format.Backfill{Hosts: hosts("6", "7")}, format.Backfill{Hosts: hosts("", "")}},
		"lists, of one":             {format.Backfill{Hosts: hosts("5", "end"), ListingFrom: at, ListingHoles: 3}, format.Backfill{}, format.Backfill{Hosts: hosts("", ""), ListingFrom: at, ListingHoles: 3}},
		"lists, of different hosts": {format.Backfill{Hosts: hosts("5")}, format.Backfill{Hosts: hosts("5", "6")}, format.Backfill{Hosts: hosts("5", "")}},
		"lists, since":              {format.Backfill{Hosts: hosts("5"), ListingFrom: at, ListingHoles: 3}, format.Backfill{Hosts: hosts("5"), ListingFrom: at.Add(1), ListingHoles: 2}, format.Backfill{Hosts: hosts("5"), ListingFrom: at, ListingHoles: 2}},
		"lists, of what one lacks":  {format.Backfill{Hosts: hosts("5"), Roster: roster(1)}, format.Backfill{}, format.Backfill{}},
		"lists, of what both lack":  {format.Backfill{Hosts: hosts("5"), Roster: roster(1)}, format.Backfill{Roster: roster(1)}, format.Backfill{Hosts: hosts(""), Roster: roster(1)}},
		"lists that were asked for": {format.Backfill{Hosts: hosts("5"), Named: true, Roster: roster(1)}, format.Backfill{}, format.Backfill{Hosts: hosts(""), Named: true}},
		"lists of what one lacks beside those asked for": {
			format.Backfill{Hosts: hosts("5"), Roster: format.Roster{AsOf: at.Add(1), Source: format.RosterRepos, Unlisted: []string{"a"}}},
			format.Backfill{Hosts: hosts("5"), Named: true, Roster: roster(1)},
			format.Backfill{Hosts: hosts("5"), Named: true, Roster: format.Roster{AsOf: at.Add(1), Source: format.RosterRepos, Unlisted: []string{"a"}}},
		},
		"lists of all and asked for": {format.Backfill{Hosts: hosts("5"), Named: true}, format.Backfill{Hosts: hosts("5")}, format.Backfill{Hosts: hosts("5")}},
		"a sweep":                    {format.Backfill{Sweep: 2, SweepAt: 7, Swept: 1}, format.Backfill{Sweep: 2, SweepAt: 5, Swept: 2}, format.Backfill{Sweep: 2, SweepAt: 5, Swept: 1}},
		"a sweep of one":             {format.Backfill{Sweep: 2, SweepAt: 7, Swept: 1}, format.Backfill{Sweep: 1, SweepAt: 9, Swept: 1}, format.Backfill{Sweep: 2, Swept: 1}},
		"a comparison of one":        {format.Backfill{Round: format.Round{Ended: at}}, format.Backfill{}, format.Backfill{}},
		"comparisons":                {format.Backfill{Round: format.Round{Ended: at}}, format.Backfill{Round: format.Round{Ended: at.Add(1)}}, format.Backfill{Round: format.Round{Ended: at}}},
		"a part of the network":      {format.Backfill{}, format.Backfill{Around: format.Around{Hops: 1}}, format.Backfill{Around: format.Around{Hops: 1}}},
	} {
		c.a.Parts, c.b.Parts, c.want.Parts = 5, 2, 7
		for _, got := range []format.Backfill{BothBackfills(c.a, c.b), BothBackfills(c.b, c.a)} {
			if len(got.Hosts) == 0 && c.want.Hosts == nil {
				got.Hosts = nil
			}
			if len(got.Roster.Unlisted) == 0 {
				got.Roster.Unlisted = nil
			}
			if len(got.Hosts) == 0 { // these are of lists only
				got.ListingFrom, got.ListingHoles, got.Named = time.Time{}, 0, false
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
		}
		if got := BothBackfills(format.Backfill{}, c.a); !reflect.DeepEqual(got, c.a) {
			t.Errorf("%s, beside no row: %+v", name, got)
		}
	}
}

// TestBothHoles: the newest hole counts for the partitions of both rows, and it is uncompared if one of either is.
func TestBothHoles(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ a, b, want format.Holes }{
		{format.Holes{Noted: 3, Compared: 3}, format.Holes{Noted: 5, Compared: 5, Unbroken: at}, format.Holes{Noted: 5, Compared: 5}},
		{format.Holes{Noted: 3, Compared: 2, Unbroken: at}, format.Holes{Noted: 5, Compared: 5}, format.Holes{Noted: 5, Compared: 2}},
		{format.Holes{Noted: 1, Unbroken: at.Add(1)}, format.Holes{Unbroken: at}, format.Holes{Noted: 1, Unbroken: at.Add(1)}},
		{format.Holes{Noted: 3, Compared: 2}, format.Holes{Noted: 5, Compared: 4}, format.Holes{Noted: 5, Compared: 2}},
		{format.Holes{Noted: 3, Compared: 3, Floors: map[uint32]format.Seq{1: 5, 3: 8}}, format.Holes{Floors: map[uint32]format.Seq{2: 6, 3: 7}}, format.Holes{Noted: 3, Compared: 3, Floors: map[uint32]format.Seq{1: 5, 2: 6, 3: 8}}},
	} {
		c.a.Parts, c.b.Parts, c.want.Parts = 5, 2, 7
		for _, got := range []format.Holes{BothHoles(c.a, c.b), BothHoles(c.b, c.a)} {
			if len(got.Floors) == 0 {
				got.Floors = nil
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		}
	}
}
