package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/harness"
)

// goldenSubject is the subject of the golden rows.
const goldenSubject = 1000

func readRow(v []byte) (string, error) {
	r, err := ParseRow(goldenSubject, v)
	members, err1 := r.AppendMembers(nil)
	dates, err2 := r.AppendDates(nil, members)
	removed, err3 := r.AppendRemoved(nil)
	words := fmt.Sprintf("generation %d, removed %s, members %s", r.Generation, ranges(removed), ranges(members))
	if slices.ContainsFunc(dates, func(d uint32) bool { return d != OneRecord }) {
		words += fmt.Sprintf(", dates %d", dates)
	}
	return words, errors.Join(err, err1, err2, err3)
}

// readChunk returns a reader of the chunks of an actor and a kind.
func readChunk(c ChunkCoder) func(v []byte) (string, error) {
	return func(v []byte) (string, error) {
		records, generation, err := c.Read(nil, v)
		words := fmt.Sprintf("generation %d", generation)
		for _, r := range records {
			words += fmt.Sprintf(", %s", r.Path.AppendRkey(nil))
			switch r.Flags {
			case Removed:
				words += " removed"
			case NoSubject:
				words += " names nothing"
			default:
				words += fmt.Sprintf(" names %#x", uint64(r.Subject))
			}
		}
		return words, err
	}
}

func stateWords(s RepoState) string {
	flags := ""
	for i, name := range []string{"has rev", "partial", "desynchronized", "hidden", "erasing"} {
		if s.Has(1 << i) {
			flags += name + " "
		}
	}
	if s.Has(FlagRecords) {
		flags += "records "
	}
	return fmt.Sprintf("{%scommit %d:%d account %d:%d deletion %d:%d rev %v data %x top %#x records %v}", flags, s.Source, s.Seq,
		s.AccountSource, s.AccountSeq, s.DeletionSource, s.DeletionSeq, s.Rev, s.Data, s.Top, s.Records)
}

// readGroup returns a reader of the group of accounts under a key.
func readGroup(l Layout, actor dict.ID) func(v []byte) (string, error) {
	return func(v []byte) (string, error) {
		words := ""
		err := l.EachState(l.AccountKey(nil, actor), v, func(actor dict.ID, s RepoState) error {
			words += fmt.Sprintf("%#x %s ", uint64(actor), stateWords(s))
			return nil
		})
		return words + ".", err
	}
}

func readCursorRow(v []byte) (string, error) {
	c, err := DecodeCursor(v)
	return fmt.Sprintf("number %d, seq %d, time %s, future %v, live %v", c.Number, c.Seq, c.Time.UTC().Format(time.RFC3339Nano), c.Future, c.Live), err
}

func readHeader(v []byte) (string, error) {
	h, err := DecodeHeader(v)
	return fmt.Sprintf("version %d, %v, kinds %v", h.Version, h.Settings, h.Kinds), err
}

// readJSON returns a reader of a JSON value.
func readJSON[T any](v []byte) (string, error) {
	var x T
	err := json.Unmarshal(v, &x)
	return fmt.Sprintf("%+v", x), err
}

func readCounts(v []byte) (string, error) {
	c, err := DecodeCounts(v)
	for _, m := range []map[string]int64{c.Records, c.Strings} { // a new kind has 0
		maps.DeleteFunc(m, func(_ string, n int64) bool { return n == 0 })
	}
	return fmt.Sprintf("%+v", c), err
}

func asJSON(x any) []byte {
	v, err := json.Marshal(x)
	if err != nil {
		return []byte(err.Error())
	}
	return v
}

func goldenRows() (forms []harness.Form) {
	for _, r := range []struct {
		name             string
		generation       uint64
		removed, members []uint64
	}{
		{"row of nothing", 0, nil, nil},
		{"row of one member above the subject", 0, nil, []uint64{1001}},
		{"row of one member below the subject", 0, nil, []uint64{999}},
		{"row of the subject itself", 0, nil, []uint64{goldenSubject}},
		{"row of neighbours", 0, nil, []uint64{1, 2, 3, 4, 400, 100_000}},
		{"row of the farthest member of the short form", 0, nil, []uint64{goldenSubject + 1<<60 - 1}},
		{"row of the nearest member of the other form", 0, nil, []uint64{goldenSubject + 1<<60}},
		{"row of the ends of the id space", 0, nil, []uint64{0, 1<<64 - 1}},
		{"row of long ids", 0, nil, []uint64{uint64(longID), uint64(longID) + 70_000}},
		{"row operand that removes", 0, []uint64{5}, nil},
		{"row operand that adds and removes", 0, []uint64{5, 1002}, []uint64{7, 9}},
		{"spilled row without changes", 1, nil, nil},
		{"spilled row that adds", 2, nil, []uint64{1001, 1003}},
		{"spilled row that adds and removes", 1 << 40, []uint64{1000, 1002}, []uint64{1001, 1003}},
	} {
		forms = append(forms, harness.NewForm(r.name, AppendRow(nil, goldenSubject, r.generation, r.removed, r.members, nil), readRow))
	}
	for _, r := range []struct {
		name             string
		generation       uint64
		removed, members []uint64
		dates            []uint32
	}{
		{"row operand with a date", 0, nil, []uint64{1001}, []uint32{1_767_225_600}},
		{"row operand with dates that removes", 0, []uint64{5, 6}, []uint64{7, 1001}, []uint32{Undated, 0}},
		{"row operand with a member that was removed before", 0, []uint64{5, 7}, []uint64{7, uint64(longID)}, []uint32{1_767_225_600, OneRecord}},
		{"spilled row with dates", 3, nil, []uint64{1001, 1003}, []uint32{OneRecord - 1, Undated}},
		{"spilled row with dates that removes", 1 << 40, []uint64{1000}, []uint64{999, uint64(longID)}, []uint32{1, 2}},
		{"row with undated members", 0, nil, []uint64{999, 1000, 1001}, []uint32{Undated, OneRecord, Undated}},
		{"row operand with an undated member that was removed before", 0, []uint64{5, 7}, []uint64{7, uint64(longID)}, []uint32{Undated, OneRecord}},
		{"spilled row with an undated member", 2, []uint64{5}, []uint64{1001}, []uint32{Undated}},
	} {
		forms = append(forms, harness.NewForm(r.name, AppendRow(nil, goldenSubject, r.generation, r.removed, r.members, r.dates), readRow))
	}
	return forms
}

// goldenGroups has row groups; their first subject is 1008.
func goldenGroups() []harness.Form {
	read := func(v []byte) (words string, err error) {
		words = "rows"
		err = EachRow(1008, v, func(subject dict.ID, row []byte) error {
			r, err := ParseRow(subject, row)
			members, err1 := r.AppendMembers(nil)
			removed, err2 := r.AppendRemoved(nil)
			words += fmt.Sprintf(", %d: generation %d, removed %s, members %s", subject, r.Generation, ranges(removed), ranges(members))
			return errors.Join(err, err1, err2)
		})
		return words, err
	}
	row := func(subject dict.ID, members ...uint64) []byte { return AppendRow(nil, subject, 0, nil, members, nil) }
	group := func(rows map[dict.ID][]byte) []byte {
		var g RowGroup
		for subject := range dict.ID(rowsInGroup) {
			if row, ok := rows[1008+subject]; ok {
				g.Add(1008+subject, row)
			}
		}
		return g.Value
	}
	var long []uint64
	for i := range uint64(200) {
		long = append(long, 1000+300*i)
	}
	return []harness.Form{
		harness.NewForm("group of no rows", group(nil), read),
		harness.NewForm("group of neighbours", group(map[dict.ID][]byte{1008: row(1008, 7), 1009: row(1009, 1010, 5000), 1010: row(1010, uint64(longID))}), read),
		harness.NewForm("group of the last subject", group(map[dict.ID][]byte{1023: row(1023, 7)}), read),
		harness.NewForm("group with holes, and a row of 400 bytes", group(map[dict.ID][]byte{1010: row(1010, 7), 1011: row(1011, long...), 1020: row(1020, 8)}), read),
		harness.NewForm("operand that takes the place of a row", group(map[dict.ID][]byte{1012: AppendRow(nil, 1012, 2, nil, nil, nil), 1014: AppendRow(nil, 1014, 0, []uint64{5}, nil, nil)}), read),
	}
}

func goldenChunks() (forms []harness.Form) {
	tid := func(micros, clock uint64) Path { return Path{TID: (goldenTID>>ClockBits+micros)<<ClockBits | clock} }
	raw := func(s string) Path { return Path{Raw: []byte(s)} }
	const a = shortID
	far := func(paths ...Path) (records []Record) { // subjects whose differences are of about the same length
		for i, p := range paths {
			records = append(records, Record{Path: p, Subject: a + dict.ID(1-i%2)*700_000_000 + dict.ID(i)})
		}
		return records
	}
	early := Path{TID: 1_400_000_000_000_000<<ClockBits | 17}
	for _, c := range []struct {
		name       string
		generation uint64
		actor      dict.ID
		records    []Record
	}{
		{"chunk of a TID", 0, a, []Record{{Path: tid(0, 17), Subject: a + 1}}},
		{"chunk of a TID of clock 0", 0, a, []Record{{Path: tid(0, 0), Subject: a + 1}}},
		{"chunk of a TID before 2022", 0, a, []Record{{Path: early, Subject: a + 1}, {Path: tid(0, 17), Subject: a + 2}}},
		{"chunk of the first and the last TID", 0, a, []Record{{Path: Path{}, Subject: a + 1}, {Path: Path{TID: EndOfTime - 1}, Subject: a + 2}}},
		{"chunk of TIDs of one clock", 0, a, []Record{{Path: tid(0, 17), Subject: a + 1}, {Path: tid(1, 17), Subject: a - 1}, {Path: tid(5000, 17), Subject: a}}},
		{"chunk of TIDs of two clocks", 0, a, []Record{{Path: tid(0, 17), Subject: 3}, {Path: tid(0, 18), Subject: 4}, {Path: tid(1, 1023), Subject: 5}}},
		{"chunk of a TID removed", 0, a, []Record{{Path: tid(0, 17), Flags: Removed}, {Path: tid(1, 17), Subject: a + 2}}},
		{"chunk of a TID that names nothing", 0, a, []Record{{Path: tid(0, 17), Flags: NoSubject}, {Path: tid(1, 17), Subject: a + 2}}},
		{"chunk of a long subject", 0, a, []Record{{Path: tid(0, 17), Subject: longID}, {Path: tid(1, 17), Subject: shortID}}},
		{"chunk of a long actor", 0, longID, []Record{{Path: tid(0, 17), Subject: longID + 1}}},
		{"spilled chunk of nothing", 1, a, nil},
		{"spilled chunk of a TID", 300, a, []Record{{Path: tid(0, 17), Flags: Removed}, {Path: tid(9, 17), Subject: a + 9}}},
		{"chunk of a raw key", 0, a, []Record{{Path: raw("self"), Subject: a + 1}}},
		{"chunk of raw keys", 0, a, []Record{{Path: raw("A"), Flags: Removed}, {Path: raw("b:c"), Flags: NoSubject}, {Path: raw("self"), Subject: longID}}},
		{"chunk of a TID and raw keys", 0, a, []Record{{Path: tid(0, 17), Subject: a + 1}, {Path: raw("self"), Subject: a + 2}, {Path: raw("zzzzzzzzzzzzz"), Subject: a + 3}}},
		{"spilled chunk of a raw key", 2, a, []Record{{Path: raw("self"), Flags: Removed}}},
	} {
		coder := CoderOf(1, c.actor)
		forms = append(forms, harness.NewForm(c.name, coder.Append(nil, c.generation, c.records), readChunk(coder)))
	}
	coder, many := CoderOf(1, a), CoderOf(kinds.FirstMany, a)
	for _, c := range []struct {
		name    string
		records []Record
	}{
		{"packed chunk of one clock", far(tid(0, 17), tid(1<<40, 17), tid(2<<40, 17), tid(3<<40, 17), tid(4<<40, 17), tid(5<<40, 17))},
		{"packed chunk of four clocks", far(tid(0, 31), tid(1<<40, 32), tid(1<<40, 1023), tid(2<<40, 0), tid(3<<40, 0), tid(4<<40, 0))},
		{"packed chunk from before 2022 on", far(early, tid(0, 17), tid(1<<40, 17), tid(2<<40, 17), tid(3<<40, 17), tid(4<<40, 17))},
	} {
		forms = append(forms, harness.NewForm(c.name, coder.AppendStored(nil, 0, c.records), readChunk(coder)))
	}
	for name, records := range map[string][]Record{
		"pairs":               {{Path: tid(0, 17), Subject: 3}, {Path: tid(0, 17), Subject: 5, Flags: Removed}, {Path: tid(1, 17), Subject: longID}},
		"pairs of other keys": {{Path: tid(0, 17), Subject: 3}, {Path: raw("a"), Subject: 3}, {Path: raw("a"), Subject: 5, Flags: Removed}, {Path: raw("b"), Subject: 3}},
	} {
		forms = append(forms, harness.NewForm(name, many.Append(nil, 0, records), readChunk(many)))
	}
	return forms
}

// goldenStates are states of accounts. Together they have every part of the row.
var goldenStates = []RepoState{
	{},
	{Flags: FlagPartial | FlagHidden, AccountSource: 3, AccountSeq: 1 << 40},
	{Flags: FlagErasing, Source: 1, Seq: 7, DeletionSource: 1, DeletionSeq: 7},
	{Flags: FlagHasRev, Source: 2, Seq: 31_527_015_322, Rev: goldenTID, Data: Root{1, 2, 3, 4, 5, 6, 7, 8}},
	{
		Flags: FlagHasRev | FlagDesync, Source: 1 << 31, Seq: 300, AccountSource: 2, AccountSeq: 299, DeletionSource: 1, DeletionSeq: 128,
		Rev: goldenTID, Data: Root{9}, Top: goldenTID + 1,
	},
	{Flags: FlagHasRev | FlagPartial | FlagNoRoot | FlagRecords, Rev: goldenTID, Records: [kinds.LastBuiltIn]uint32{0, 375, 1<<32 - 1}},
	{Flags: FlagResync},
}

func goldenAccounts() (forms []harness.Form) {
	var all []byte
	for i, s := range goldenStates {
		id := shortID&^255 + dict.ID(i*51)
		if i < 5 { // the golden file has these in a group
			all = alone.AppendAccount(all, id, &s)
		}
		forms = append(forms,
			harness.NewForm(fmt.Sprintf("account %d, of a group", i), alone.AppendAccount(nil, id, &s), readGroup(alone, id)),
			harness.NewForm(fmt.Sprintf("account %d, its own group", i), shared.AppendAccount(nil, id, &s), readGroup(shared, id)))
	}
	return append(forms, harness.NewForm("group of accounts", all, readGroup(alone, shortID)))
}

func goldenRest() (forms []harness.Form) {
	at := time.UnixMicro(1_767_225_600_123_456).UTC()
	for _, c := range []struct {
		name string
		CursorRow
	}{
		{"cursor", CursorRow{Number: 1, Seq: 31_527_015_322, Time: at}},
		{"cursor in the future", CursorRow{Number: 1 << 24, Seq: 5, Time: at, Future: true}},
		{"cursor before the first event", CursorRow{Number: 2, Time: at, Live: true}},
		{"cursor with both flags, before 1970", CursorRow{Number: 1<<32 - 1, Seq: -1, Time: time.UnixMicro(-1), Live: true, Future: true}},
	} {
		forms = append(forms, harness.NewForm(c.name, c.Value(), readCursorRow))
	}
	for _, h := range []struct {
		name string
		Header
	}{
		{"header of one writer", Header{Version: Newest, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{1, 2, 3, 4}}},
		{"header of several writers", Header{Version: Newest, Settings: dict.SharedSettings, Kinds: []kinds.Kind{1, 2, 3, 4}}},
		{"header without kinds", Header{Version: Newest, Settings: dict.Settings{ShardBits: 32, LeaseSize: 1, Partitions: 1, Group: 2}, Kinds: nil}},
	} {
		forms = append(forms, harness.NewForm(h.name, h.Append(nil), readHeader))
	}
	counts := Counts{
		AccountCounts: AccountCounts{Accounts: 40_000_000, Hidden: 3, Partial: 2}, Complete: 39_999_998, Desynchronized: 1,
		Records: map[string]int64{"follow": 5, "like": 6, "repost": -7, "block": 0}, Strings: map[string]int64{"did": 8, "uri": 9},
	}
	gap := Gap{Source: "wss://bsky.network", After: 5, Reason: "jump", Time: at, Since: at.Add(-time.Minute), Suspect: true, Detail: "5 to 9"}
	letter := DeadLetter{Source: "wss://bsky.network", Seq: 5, DID: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Path: "app.bsky.graph.follow/self", Reason: "no CID", Time: at}
	resync := Resync{
		Reason: "chain", Generation: 3, Queued: at, Due: at.Add(time.Minute), Tries: 2, Failure: "not_found", Detail: "404",
		Placing: 5, Told: 6, Back: PutBack{Rev: 3, Root: []byte{1, 2}, Above: 5}, Trust: true,
	}
	backfill := Backfill{
		Archive: "https://archive.example.com", Begun: at, Hosts: map[string]HostBackfill{"pds.example.com": {Cursor: "c", Listed: 5}},
		Roster: Roster{AsOf: at, Source: RosterRepos, Unlisted: []string{"https://pds2.example.com"}},
		Around: Around{Centers: []string{"did:plc:ewvi7nxzyoun6zhxrhs64oiz"}, Hops: 1, Members: 500}, Parts: 6,
	}
	touched := TouchedCommit{Since: 5, Data: Root{1, 2}, Prev: Root{3}, HasPrev: true, Broken: true}
	claim := ClaimRow{Owner: "host:1", Since: at, Parts: AllPartitions(64)}
	return append(forms,
		harness.NewForm("counts", asJSON(counts), readCounts), harness.NewForm("counts of nothing", asJSON(Counts{}), readCounts),
		harness.NewForm("gap", asJSON(gap), readJSON[Gap]), harness.NewForm("gap without a beginning", asJSON(Gap{Reason: "began", Time: at}), readJSON[Gap]),
		harness.NewForm("dead letter", asJSON(letter), readJSON[DeadLetter]), harness.NewForm("dead letter with a detail", asJSON(DeadLetter{Reason: "proof", Time: at, Detail: "a node of the tree is missing"}), readJSON[DeadLetter]), harness.NewForm("dead letter of no account", asJSON(DeadLetter{Reason: "no frame", Time: at}), readJSON[DeadLetter]),
		harness.NewForm("queued resync", asJSON(resync), readJSON[Resync]), harness.NewForm("failed resync", asJSON(Resync{State: ResyncFailed, Reason: "sync"}), readJSON[Resync]),
		harness.NewForm("backfill", asJSON(backfill), readJSON[Backfill]), harness.NewForm("no backfill", asJSON(Backfill{}), readJSON[Backfill]),
		harness.NewForm("touched commit", touched.Append(nil), func(v []byte) (string, error) {
			c, err := DecodeTouched(AppendTouchedCommitKey(nil, shortID, 7), v)
			return fmt.Sprintf("%+v", c.Commit), err
		}),
		harness.NewForm("hiding", asJSON(Hiding{Version: 257, Hidden: []dict.ID{longID}, Shown: []dict.ID{shortID}}), readJSON[Hiding]),
		harness.NewForm("holes", asJSON(Holes{Noted: 3, Compared: 2, Unbroken: at, Floors: map[uint32]Seq{1<<24 | 7: 5}, Parts: 6}), readJSON[Holes]),
		harness.NewForm("claim", asJSON(claim), readJSON[ClaimRow]), harness.NewForm("claim of nothing", asJSON(ClaimRow{Owner: "host:2", Since: at}), readJSON[ClaimRow]))
}

// TestGoldenValues: every form of value is written and read as in existing stores.
func TestGoldenValues(t *testing.T) {
	harness.CheckGolden(t, "rows.golden", goldenRows())
	harness.CheckGolden(t, "rowgroups.golden", goldenGroups())
	harness.CheckGolden(t, "chunks.golden", goldenChunks())
	harness.CheckGolden(t, "accounts.golden", goldenAccounts())
	harness.CheckGolden(t, "rest.golden", goldenRest())
}

// ranges formats an ascending list of numbers: "[3 5-9]".
func ranges(list []uint64) string {
	var parts []string
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i]+uint64(n) {
			n++
		}
		if n > 2 {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[i+n-1]))
			i += n
			continue
		}
		parts = append(parts, fmt.Sprint(list[i]))
		i++
	}
	return "[" + strings.Join(parts, " ") + "]"
}
