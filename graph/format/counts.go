package format

import (
	"maps"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Counts are the totals of the store. The write that changes a total also writes its row.
type Counts struct {
	AccountCounts
	Complete       int64            `json:"complete"`       // RepoState.Complete
	Desynchronized int64            `json:"desynchronized"` // repos that the index missed something of
	Records        map[string]int64 `json:"records"`        // live records, by kind
	Strings        map[string]int64 `json:"strings"`        // ids in use, by namespace
}

// AccountCounts are the Counts that many questions need.
type AccountCounts struct {
	Accounts   int64 `json:"accounts"`   // known accounts
	Hidden     int64 `json:"hidden"`     // inactive accounts
	Partial    int64 `json:"partial"`    // repos whose past was never seen
	Incomplete int64 `json:"incomplete"` // RepoState.Incomplete
	Missed     int64 `json:"missed"`     // RepoState.Missed
}

// Add adds d to c.
func (c *AccountCounts) Add(d AccountCounts) {
	c.Accounts += d.Accounts
	c.Hidden += d.Hidden
	c.Partial += d.Partial
	c.Incomplete += d.Incomplete
	c.Missed += d.Missed
}

// Clone returns a copy that has an entry for every built-in kind and every namespace.
func (c Counts) Clone() Counts {
	d := c
	d.Records, d.Strings = make(map[string]int64, len(kinds.All)), make(map[string]int64, 2)
	for _, k := range kinds.All {
		d.Records[k.Name] = 0
	}
	maps.Copy(d.Records, c.Records)
	for _, ns := range dict.Namespaces {
		d.Strings[ns.String()] = c.Strings[ns.String()]
	}
	return d
}

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	c.AccountCounts.Add(d.AccountCounts)
	c.Complete += d.Complete
	c.Desynchronized += d.Desynchronized
	for name, n := range d.Records {
		c.Records[name] += n
	}
	for _, ns := range dict.Namespaces {
		c.Strings[ns.String()] += d.Strings[ns.String()]
	}
}

// Move counts a change of an account's state.
func (c *Counts) Move(was, now *RepoState) {
	const counted = FlagHasRev | FlagHidden | FlagPartial | FlagDesync | FlagResync | FlagReturned
	if (was.Flags^now.Flags)&counted == 0 {
		return
	}
	c.addState(was, -1)
	c.addState(now, 1)
}

func (c *Counts) addState(s *RepoState, n int64) {
	for _, t := range [...]struct {
		total *int64
		is    bool
	}{
		{&c.Hidden, s.Has(FlagHidden)},
		{&c.Partial, s.Has(FlagPartial)},
		{&c.Desynchronized, s.Has(FlagDesync)},
		{&c.Complete, s.Complete()},
		{&c.Incomplete, s.Incomplete()},
		{&c.Missed, s.Missed()},
	} {
		if t.is {
			*t.total += n
		}
	}
}

// DecodeCounts reads the value of KeyCounts.
func DecodeCounts(v []byte) (c Counts, err error) {
	c, err = FromJSON[Counts](v)
	return c.Clone(), err
}
