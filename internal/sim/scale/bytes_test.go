package scale

import (
	"math/bits"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// TestBytes prints what the values of records and sets take, what the numbers of the records take in the byte form, and what numbers would take in Golomb–Rice codes
// (Rice, "Some practical universal noiseless coding techniques", 1979), with the best parameter for each value. skein stats has the bytes
// on disk, which include keys.
//
//	go test ./internal/sim/scale -run TestBytes -v -scale.dir DIR
func TestBytes(t *testing.T) {
	if *dir == "" {
		t.Skip("needs a store in -scale.dir")
	}
	x := open(t, *dir)
	defer func() { _ = x.KV.Close() }()
	err := x.KV.View(t.Context(), func(r kv.Reader) error {
		h, err := read.Header(r)
		if err != nil {
			return err
		}
		t.Log("| records | chunks | bytes a record, as stored | in the byte form: times | clocks | subjects | in Rice codes: times | subjects |")
		for i := range h.Table.All {
			if k := h.Table.All[i]; !k.Kind.IsLabel() && !k.Kind.IsMany() {
				if err := chunkBytes(t, r, &k); err != nil {
					return err
				}
			}
		}
		t.Log("| sets | rows | groups of 64 subjects | members | bytes of values | members in Rice codes |")
		for i := range h.Table.All {
			if k := h.Table.All[i]; !k.Kind.IsLabel() {
				if err := rowBytes(t, r, &k); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// chunkBytes prints what the chunks of a kind consist of.
func chunkBytes(t *testing.T, r kv.Reader, k *kinds.Info) error {
	t.Helper()
	var chunks, records, all, times, clocks, subjects, riceTimes, riceSubjects int
	var of []format.Record
	var micros, diffs []uint64
	err := kv.ScanPrefix(r, []byte{format.KeyRecord, byte(k.Kind)}, func(key, value []byte) error {
		_, actor, _, _, err := format.ParseChunkKey(key)
		if err == nil {
			of, _, err = format.CoderOf(k.Kind, actor).Read(of[:0], value)
		}
		if err != nil || len(of) == 0 {
			return err
		}
		micros, diffs = micros[:0], diffs[:0]
		at, clock, subject := of[0].Path.TID>>format.ClockBits, uint64(0), uint64(actor)
		for i := range of {
			if of[i].Flags != 0 || of[i].Path.Raw != nil {
				continue
			}
			tid := of[i].Path.TID
			micros = append(micros, tid>>format.ClockBits-at)
			diffs = append(diffs, dict.Zigzag(uint64(of[i].Subject)-subject))
			at, subject = tid>>format.ClockBits, uint64(of[i].Subject)
			if now := tid & (1<<format.ClockBits - 1); now != clock {
				clock = now
				clocks += 2
			}
			times += uvarintLen(micros[len(micros)-1] << 1)
			subjects += uvarintLen(diffs[len(diffs)-1])
		}
		chunks++
		records += len(micros)
		all += len(value)
		riceTimes += rice(micros)
		riceSubjects += rice(diffs)
		return nil
	})
	if n := float64(max(records, 1)); records > 0 {
		t.Logf("| %s: %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |", k.Name, records, chunks, float64(all)/n, float64(times)/n,
			float64(clocks)/n, float64(subjects)/n, float64(riceTimes)/8/n, float64(riceSubjects)/8/n)
	}
	return err
}

// rowBytes prints what the rows of the sets of a kind consist of.
func rowBytes(t *testing.T, r kv.Reader, k *kinds.Info) error {
	t.Helper()
	var rows, groups, members, all, riceMembers int
	last := ^dict.ID(0)
	var diffs []uint64
	add := func(subject dict.ID, value []byte) error {
		row, err := format.ParseRow(subject, value)
		if err != nil || row.Generation > 0 {
			return err
		}
		of, err := row.AppendMembers(nil)
		diffs = diffs[:0]
		at := uint64(subject)
		for i, m := range of {
			if d := m - at; i == 0 {
				diffs = append(diffs, dict.Zigzag(d))
			} else {
				diffs = append(diffs, d-1)
			}
			at = m
		}
		if rows++; subject>>dict.GroupBits != last {
			groups, last = groups+1, subject>>dict.GroupBits
		}
		members += len(of)
		all += len(value)
		riceMembers += rice(diffs)
		return err
	}
	err := kv.ScanPrefix(r, []byte{format.KeyReverse, byte(k.Kind)}, func(key, value []byte) error {
		subject, _ := dict.ReadID(key[2:])
		return add(subject, value)
	})
	if err == nil {
		err = kv.ScanPrefix(r, []byte{format.KeyRows, byte(k.Kind)}, func(key, value []byte) error {
			_, first, err := format.ParseRowGroupKey(key)
			if err != nil {
				return err
			}
			return format.EachRow(first, value, add)
		})
	}
	if rows > 0 {
		t.Logf("| %s | %d | %d | %d | %d | %d |", k.Name, rows, groups, members, all, riceMembers/8)
	}
	return err
}

func uvarintLen(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// rice returns how many bits the numbers take in a Golomb–Rice code with the best parameter, which takes 6 bits.
func rice(numbers []uint64) int {
	best := 0
	for parameter := range 63 {
		sum := 6 + len(numbers)*(1+parameter)
		for _, n := range numbers {
			sum += int(min(n>>parameter, 1<<30))
		}
		if best == 0 || sum < best {
			best = sum
		}
	}
	return best
}
