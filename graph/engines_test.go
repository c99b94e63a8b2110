package graph_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/memkv"
)

// engine opens a store, and opens it again after a crash.
type engine struct {
	name     string
	settings dict.Settings
	open     func(t *testing.T, seed uint64) kv.Store
	reopen   func(t *testing.T, s kv.Store) kv.Store
	// backups returns what backs stores up and restores them; nil: the engine cannot.
	backups func(t *testing.T) *backups
}

// backups are the backups of a history's store, in one target.
type backups struct {
	to   backup.Target
	made []madeBackup // those that exist
	open func(t *testing.T, dir string) kv.Store
}

type madeBackup struct {
	at  time.Time
	seq int64 // the last event in it
}

// make backs a store up.
func (b *backups) make(t *testing.T, s kv.Store, seq int64) {
	t.Helper()
	p, ok := s.(*pebblekv.Store)
	if !ok {
		t.Fatal("not a pebblekv")
	}
	dir, at := filepath.Join(t.TempDir(), "checkpoint"), time.Now()
	must(t, p.Checkpoint(t.Context(), dir))
	check := func(path string) error { return pebblekv.CheckFile(t.Context(), p.Merger(), path) }
	r, err := backup.Create(t.Context(), b.to, backup.CreateOptions{Dir: dir, Time: at, Keep: 1, Check: check})
	must(t, errors.Join(err, os.RemoveAll(dir)))
	if r.Removed != len(b.made) {
		t.Fatalf("%+v", r)
	}
	b.made = []madeBackup{{r.Time, seq}}
}

// restore opens the newest backup in a new folder.
func (b *backups) restore(t *testing.T) kv.Store {
	t.Helper()
	m, err := backup.Find(t.Context(), b.to, time.Time{}, nil)
	must(t, err)
	dir := filepath.Join(t.TempDir(), "store")
	must(t, backup.Restore(t.Context(), b.to, backup.RestoreOptions{Dir: dir, Manifest: m}))
	return b.open(t, dir)
}

// smallLimits spill early and often.
var (
	smallLimits = write.Limits{Row: 6, Chunk: 5}
	limits      = smallLimits
)

// fewPartitions are so few that rows of one are spilled.
var fewPartitions = dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 4}

func merger() kv.Merger { return write.NewMerger(limits) }

func memOptions(seed uint64) memkv.Options {
	return memkv.Options{
		Merger: merger(),
		Faults: memkv.Faults{Seed: seed, Conflict: 0.05, Unknown: 0.05},
		Limits: memkv.Limits{Key: 10_000, Value: 100_000, Txn: 40_000, Age: time.Minute},
	}
}

func engines() []engine {
	dirs := map[kv.Store]string{}
	openDir := func(t *testing.T, dir string) kv.Store {
		s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Create: true, Merger: merger(), Memory: 8 << 20})
		must(t, err)
		dirs[s] = dir
		t.Cleanup(func() { _ = s.Close() }) // otherwise it may make files while the folder is removed
		return s
	}
	all := []engine{
		{
			"pebble", dict.DefaultSettings,
			func(t *testing.T, _ uint64) kv.Store { return openDir(t, t.TempDir()) },
			func(t *testing.T, s kv.Store) kv.Store {
				must(t, s.Close())
				return openDir(t, dirs[s])
			},
			func(t *testing.T) *backups {
				to, err := backup.OpenTarget(filepath.Join(t.TempDir(), "target"))
				must(t, err)
				return &backups{to: to, open: openDir}
			},
		},
		{
			"memory", dict.DefaultSettings,
			func(_ *testing.T, seed uint64) kv.Store { return memkv.Open(memOptions(seed)) },
			func(t *testing.T, s kv.Store) kv.Store {
				m, ok := s.(*memkv.Store)
				if !ok {
					t.Fatal("not a memkv")
				}
				return m.Reopen(memOptions(uint64(m.Counts().Commits)))
			},
			nil,
		},
	}
	fdb := map[kv.Store]fdbkv.Options{}
	openFDB := func(t *testing.T, o fdbkv.Options) kv.Store {
		s := kvtest.Open(t, o)
		fdb[s] = o
		return s
	}
	onFDB := engine{
		"fdb", fewPartitions,
		func(t *testing.T, _ uint64) kv.Store { return openFDB(t, kvtest.Options(t, merger())) },
		func(t *testing.T, s kv.Store) kv.Store {
			if err := s.Close(); err != nil { // its heartbeat ends with it
				t.Fatal(err)
			}
			return openFDB(t, fdb[s])
		},
		nil,
	}
	shared := all[1]
	shared.name, shared.settings = "memory-shared", fewPartitions
	return append(all, shared, onFDB)
}

// eraseAll erases the records of deleted accounts.
func eraseAll(t *testing.T, s *graph.Store) {
	t.Helper()
	for s.Erasing() {
		must(t, s.EraseSlice(t.Context()))
	}
}

func openGraph(t *testing.T, store kv.Store) *graph.Store {
	t.Helper()
	return openWriter(t, store, dict.Settings{}, false)
}

// openWriter opens a store, and makes a new one with settings. joins says that there are other writers.
func openWriter(t *testing.T, store kv.Store, settings dict.Settings, joins bool) *graph.Store {
	t.Helper()
	s, err := graph.Open(t.Context(), store, graph.Options{
		Intern:     intern.Options{Settings: settings, CacheBytes: 64 << 10, Owner: "test"}, // small, so that it rotates
		StateCache: 4 << 10, SliceSize: 7, Joins: joins, Beat: 20 * time.Millisecond,
	})
	must(t, err)
	return s
}
