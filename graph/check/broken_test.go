package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A breakage breaks one thing in a healthy store, and returns the expected report, or "" if
// this store does not have the thing.
type breakage func(b *bench) (want string)

// testBroken breaks every store in every way, and looks for the expected report.
func testBroken(t *testing.T, ways map[string]breakage) {
	t.Helper()
	tried := map[string]bool{}
	eachStore(t, func(t *testing.T, h healthy) {
		for name, breaks := range ways {
			b := h.bench(t)
			want := breaks(b)
			if want == "" {
				continue
			}
			tried[name] = true
			found := b.problems()
			if !strings.Contains(strings.Join(found, "\n"), want) {
				t.Errorf("%s: the reports are %q, want %q", name, found, want)
			}
		}
	})
	for name := range ways {
		if !tried[name] {
			t.Errorf("%s: possible in none of the stores", name)
		}
	}
}

func TestBrokenAccounts(t *testing.T) {
	testBroken(t, map[string]breakage{
		"an erase job of an account that is not being erased": func(b *bench) string {
			b.rows[string(format.EraseKey(b.id(alice)))] = nil
			return fmt.Sprintf("account %d: its state has erasing=false, an erase job exists: true", b.id(alice))
		},
		"an erase job and a queued repo of no account": func(b *bench) string {
			b.rows[string(format.EraseKey(b.free()))] = nil
			return "1 erase jobs and 0 rows of the resync queue are of accounts without a state"
		},
		"a state with a longer form": func(b *bench) string {
			row := b.AppendAccount(nil, b.id(alice), &format.RepoState{Flags: format.FlagHidden})
			row[1], row = row[1]+1, append(row[:len(row)-1], row[len(row)-1]|0x80, 0)
			b.rows[string(b.AccountKey(nil, b.id(alice)))] = row
			return "is not in canonical form"
		},
		"holes that cannot be read": func(b *bench) string {
			b.rows[string(format.KeyHoles)+"x"] = []byte("{")
			return "reading a format.Holes: unexpected EOF"
		},
		"a state that counts a record too many": func(b *bench) string {
			b.setState(zoe, func(st *format.RepoState) { st.Records[3]++ })
			return fmt.Sprintf("account %d does not have 1 block records, its state counts them", b.id(zoe))
		},
		"records of an account that never had one": func(b *bench) string {
			b.setState(alice, func(st *format.RepoState) { st.Flags &^= format.FlagRecords })
			return fmt.Sprintf("account %d has records, and its state says that it never had one", b.id(alice))
		},
		"a missing erase job": func(b *bench) string {
			delete(b.rows, string(format.EraseKey(b.id(erased))))
			return fmt.Sprintf("account %d: its state has erasing=true, an erase job exists: false", b.id(erased))
		},
		"an account without a string": func(b *bench) string {
			b.rows[string(b.AccountKey(nil, b.free()))] = b.AppendAccount(nil, b.free(), &format.RepoState{})
			return fmt.Sprintf("account %d has no string", b.free())
		},
		"a malformed group": func(b *bench) string {
			b.rows[string(b.AccountKey(nil, b.id(alice)))] = []byte{1}
			return "group of accounts is malformed at 01"
		},
		"a malformed row": func(b *bench) string {
			b.rows[string(b.AccountKey(nil, b.id(alice)))] = []byte{byte(b.id(alice) & b.AccountMask()), 1, 0xff}
			return "account row ff is malformed"
		},
		"a key that is not a group's": func(b *bench) string {
			key := string(dict.AppendID([]byte{format.KeyAccount}, 257))
			b.rows[key] = nil
			if b.AccountMask() == 0 {
				return ""
			}
			return fmt.Sprintf("account key %x is not the key of a group", key)
		},
		"a second account in a group of one": func(b *bench) string {
			key := b.AccountKey(nil, b.id(alice))
			b.rows[string(key)] = append([]byte{5}, b.rows[string(key)][1:]...)
			if b.AccountMask() != 0 {
				return ""
			}
			return fmt.Sprintf("group %x has an unexpected account at 5", key)
		},
		"hidden only by its row": func(b *bench) string {
			b.setState(alice, func(st *format.RepoState) { st.Flags |= format.FlagHidden })
			return "1 accounts are hidden, but not in the hidden set"
		},
		"hidden only by the set": func(b *bench) string {
			id := b.id(alice)
			b.merge(b.AppendMemberKey(nil, kinds.Hidden, 0, id), format.AppendRow(nil, 0, 0, nil, []uint64{uint64(id)}, nil))
			return fmt.Sprintf("account %d is in the hidden set, but its state is active", id)
		},
		"no hidden set": func(b *bench) string {
			for k := range b.rows {
				if strings.HasPrefix(k, "v\x00") {
					delete(b.rows, k)
				}
			}
			return "accounts are hidden, but not in the hidden set"
		},
	})
}

// TestBrokenCounts: Verify compares every count with the store.
func TestBrokenCounts(t *testing.T) {
	ways := map[string]breakage{
		"cut": func(b *bench) string {
			b.rows[b.first('m', isCounts)] = []byte("{")
			return "reading a format.Counts"
		},
		"claimed strings": func(b *bench) string {
			key := b.first(dict.KeyClaims, func(string, []byte) bool { return true })
			if key == "" {
				return ""
			}
			delete(b.rows, key)
			return "the counts are"
		},
		"a missing account": func(b *bench) string {
			delete(b.rows, string(b.AccountKey(nil, b.id("did:plc:onlyhidden"))))
			return "the counts are"
		},
		"a flag": func(b *bench) string {
			b.setState(alice, func(st *format.RepoState) { st.Flags |= format.FlagPartial })
			return "the counts are"
		},
		"another flag": func(b *bench) string {
			b.setState(alice, func(st *format.RepoState) { st.Flags |= format.FlagDesync })
			return "the counts are"
		},
		"a record without a subject": func(b *bench) string {
			b.add(1, b.id(zoe), format.Record{Path: at(7, 0).Path, Flags: format.NoSubject})
			return "the counts are"
		},
	}
	for name, change := range map[string]func(*format.Counts){
		"accounts": func(c *format.Counts) { c.Accounts++ },
		"hidden":   func(c *format.Counts) { c.Hidden-- },
		"partial":  func(c *format.Counts) { c.Partial++ },
		"desync":   func(c *format.Counts) { c.Desynchronized++ },
		"likes":    func(c *format.Counts) { c.Records["like"]-- },
		"dids":     func(c *format.Counts) { c.Strings["did"]++ },
		"uris":     func(c *format.Counts) { c.Strings["uri"]-- },
	} {
		ways[name] = func(b *bench) string {
			key := b.first('m', isCounts)
			c, err := format.DecodeCounts(b.rows[key])
			must(b.t, err)
			change(&c)
			if b.rows[key], err = json.Marshal(c); err != nil {
				b.t.Fatal(err)
			}
			return "the counts are"
		}
	}
	testBroken(t, ways)
}

func isCounts(key string, _ []byte) bool { return strings.HasPrefix(key, string(format.KeyCounts)) }

// TestUnknownKeys: keys in unknown keyspaces are reported, of each first byte.
func TestUnknownKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		var want []string
		for first := 1; first < 256; first++ {
			if key := []byte{byte(first), 0xff, 1}; format.KeyspaceOf(key) == "unknown" {
				b.rows[string(key)] = []byte("x")
				want = append(want, fmt.Sprintf("key %x is in an unknown keyspace", key))
			}
		}
		if found := b.problems(); len(want) < 200 || !slices.Equal(found, want) {
			t.Errorf("%d first bytes are unknown keyspaces; the reports are %q", len(want), found)
		}
	})
}
