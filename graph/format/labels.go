package format

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// KeyLabels is the keyspace of labels. Its second byte says what a key is:
//
//	'b' kind member set          → LabelEntries  what a labeler says of a member (an account or a record)
//	'b' 0 name                   → Labeler, JSON  how far the labels of a labeler are read
//	'b' 1 expiry(8) kind member set → nothing     labels that will expire, ordered by the time in microseconds
//
// A set is the id of a labeler and a value (kinds.LabelSet). The members with a label are in the reverse
// set ('v') of the kind and this id, like the actors of an edge.
const KeyLabels = 'b'

const (
	labelersByte = 0
	expiryByte   = 1
)

// A LabelEntry is the newest statement of a labeler about one version of a member, or about all of them: the
// one with the latest time. If several have the same time, the last one to arrive counts
// (https://atproto.com/specs/label). An entry that is not live is kept, so that an older statement that
// arrives later does not count.
type LabelEntry struct {
	CID     string // of the version; "": of all versions
	Negated bool   // the label is negated
	Expired bool   // the label has expired
	Time    int64  // when it was made, in microseconds since 1970
	Expires int64  // when it expires, in the same unit; 0: never
	// Canceled is the time of the newest negation of all versions, in an entry without CID; 0: none. Of
	// statements about single versions, only later ones count.
	Canceled int64
}

// MaxLabelTime is the largest time of a label: the last one that a TID can name, in the year 2255.
const MaxLabelTime = 1<<(63-ClockBits) - 1

// Live reports whether the member has the label.
func (e *LabelEntry) Live() bool { return !e.Negated && !e.Expired }

// Path returns the time of the entry as the path of a record.
func (e *LabelEntry) Path() Path { return Path{TID: uint64(e.Time) << ClockBits} }

// LabelEntries are the entries of one member and set, ascending by CID.
type LabelEntries []LabelEntry

// MaxVersions is the largest number of versions of a record for which a label is kept. Put removes the
// oldest one.
const MaxVersions = 16

// Flags of an entry. An entry is flags(1) uvarint time, uvarint expires (with labelExpires), length(1) and
// CID (with labelVersion), uvarint canceled (with labelCanceled). A negation without CID has no
// labelCanceled: its time says it.
const (
	labelNegated = 1 << iota
	labelExpired
	labelExpires
	labelVersion
	labelCanceled
)

// Append appends the value.
func (es LabelEntries) Append(dst []byte) []byte {
	for i := range es {
		e := &es[i]
		kept := e.Canceled != 0 && (!e.Negated || e.Canceled != e.Time)
		dst = append(dst, flagsOf(e.Negated, e.Expired, e.Expires != 0, e.CID != "", kept))
		dst = binary.AppendUvarint(dst, uint64(e.Time))
		if e.Expires != 0 {
			dst = binary.AppendUvarint(dst, uint64(e.Expires))
		}
		if e.CID != "" {
			dst = append(append(dst, byte(len(e.CID))), e.CID...)
		}
		if kept {
			dst = binary.AppendUvarint(dst, uint64(e.Canceled))
		}
	}
	return dst
}

// ErrLabels is the error of malformed keys and values of labels.
var ErrLabels error = dict.Malformed("format: malformed labels")

// DecodeLabels reads a value.
func DecodeLabels(v []byte) (es LabelEntries, err error) {
	number := func() (n int64) {
		u, w := binary.Uvarint(v)
		if w <= 0 || u > MaxLabelTime {
			err, v = ErrLabels, nil
			return 0
		}
		v = v[w:]
		return int64(u)
	}
	for len(v) > 0 && err == nil {
		flags := v[0]
		v = v[1:]
		e := LabelEntry{Negated: flags&labelNegated != 0, Expired: flags&labelExpired != 0, Time: number()}
		if flags&labelExpires != 0 {
			if e.Expires = number(); e.Expires == 0 {
				return nil, ErrLabels
			}
		}
		if flags&labelVersion != 0 {
			if len(v) == 0 || v[0] == 0 || len(v) <= int(v[0]) {
				return nil, ErrLabels
			}
			end := 1 + int(v[0])
			e.CID, v = string(v[1:end]), v[end:]
		}
		if e.Negated && e.CID == "" {
			e.Canceled = e.Time
		}
		if flags&labelCanceled != 0 {
			c := number()
			if e.CID != "" || c == 0 || c == e.Canceled {
				return nil, ErrLabels
			}
			e.Canceled = c
		}
		if n := len(es); flags >= labelCanceled<<1 || n > 0 && es[n-1].CID >= e.CID {
			return nil, ErrLabels
		}
		es = append(es, e)
	}
	if err != nil || len(es) == 0 {
		return nil, ErrLabels
	}
	return es, nil
}

// Put applies a statement. A negation without a CID also removes the earlier entries of single versions, because a
// negation cancels every earlier label with the same source, subject and value. A negation with a CID cancels only
// the label of that version.
func (es *LabelEntries) Put(e LabelEntry) {
	if all := es.whole(); e.CID != "" && all != nil && e.Time <= all.Canceled {
		return
	} else if e.CID == "" && all != nil {
		e.Canceled = all.Canceled
	}
	if e.CID == "" && e.Negated {
		e.Canceled = max(e.Canceled, e.Time)
		*es = slices.DeleteFunc(*es, func(x LabelEntry) bool { return x.CID != "" && x.Time <= e.Canceled })
	}
	i, found := slices.BinarySearchFunc(*es, e.CID, func(x LabelEntry, cid string) int { return cmp.Compare(x.CID, cid) })
	switch {
	case found && (*es)[i].Time > e.Time:
		(*es)[i].Canceled = e.Canceled // an older negation of all versions still cancels those before it
	case found:
		(*es)[i] = e
	default:
		*es = slices.Insert(*es, i, e)
	}
	versions := *es
	if es.whole() != nil {
		versions = versions[1:]
	}
	if len(versions) > MaxVersions {
		oldest := slices.MinFunc(versions, func(x, y LabelEntry) int { return cmp.Compare(x.Time, y.Time) })
		*es = slices.DeleteFunc(*es, func(x LabelEntry) bool { return x.CID == oldest.CID })
	}
}

// whole returns the entry of all versions, nil if there is none.
func (es *LabelEntries) whole() *LabelEntry {
	if len(*es) > 0 && (*es)[0].CID == "" {
		return &(*es)[0]
	}
	return nil
}

// Expire marks the entries that have expired at the time now.
func (es LabelEntries) Expire(now int64) {
	for i := range es {
		if e := &es[i]; e.Live() && e.Expires != 0 && e.Expires <= now {
			e.Expired = true
		}
	}
}

// Date returns the date of the member in the set (dates.go), and whether it is a member.
func (es LabelEntries) Date() (date uint32, member bool) {
	for i := range es {
		if !es[i].Live() {
			continue
		}
		if date = DateOf(es[i].Path()); member {
			date = Undated
		}
		member = true
	}
	return date, member
}

// AppendLabelsKey appends the prefix of the keys of a member's labels, which the id of the label's set completes.
func AppendLabelsKey(dst []byte, k kinds.Kind, member dict.ID) []byte {
	return dict.AppendID(append(dst, KeyLabels, byte(k)), member)
}

// ParseLabelKey returns the parts of the key of a label.
func ParseLabelKey(key []byte) (k kinds.Kind, member, set dict.ID, err error) {
	if len(key) > 2 && key[0] == KeyLabels && kinds.Kind(key[1]).IsLabel() {
		member, n := dict.ReadID(key[2:])
		if n > 0 {
			if set, m := dict.ReadID(key[2+n:]); m > 0 && len(key) == 2+n+m {
				return kinds.Kind(key[1]), member, set, nil
			}
		}
	}
	return 0, 0, 0, fmt.Errorf("%w: key %x", ErrLabels, key)
}

// AppendExpiryKey appends the key of a label that will expire. label is the label's key.
func AppendExpiryKey(dst []byte, expires int64, label []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, KeyLabels, expiryByte), uint64(expires))
	return append(dst, label[1:]...)
}

// ExpiryKeys returns the range of the keys of labels that expire up to a time.
func ExpiryKeys(until int64) (lo, hi []byte) {
	lo = []byte{KeyLabels, expiryByte}
	return lo, binary.BigEndian.AppendUint64([]byte{KeyLabels, expiryByte}, uint64(until)+1)
}

// ParseExpiryKey returns the time, and the key of the label.
func ParseExpiryKey(key []byte) (expires int64, label []byte, err error) {
	if len(key) > 10 && key[0] == KeyLabels && key[1] == expiryByte {
		label = append([]byte{KeyLabels}, key[10:]...)
		_, _, _, err = ParseLabelKey(label)
		return int64(binary.BigEndian.Uint64(key[2:])), label, err
	}
	return 0, nil, fmt.Errorf("%w: key %x", ErrLabels, key)
}

// A Labeler is the read state of one labeler: its cursor, and any problem. The row's key has the name in the
// configuration: a DID or a URL.
type Labeler struct {
	Name string `json:"-"`
	// DID is the source of its labels, "" while that is not known: of a labeler that is configured by
	// its address, it is the source of the first label.
	DID string `json:"did,omitempty"`
	// Seq is the number of the last message that is applied.
	Seq int64 `json:"seq"`
	// Time is when that message was applied.
	Time time.Time `json:"time,omitzero"`
	// Current says that there was nothing more to read when this row was written.
	Current bool `json:"current,omitempty"`
	// Missed is when the labeler said that it no longer has the labels after a cursor.
	Missed time.Time `json:"missed,omitzero"`
	// Restarted is when the labeler last restarted its sequence, or sent a lower number than before.
	Restarted time.Time `json:"restarted,omitzero"`
	// Seen is when skein last read from the labeler, or knew that there was nothing to read, to a minute.
	Seen time.Time `json:"seen,omitzero"`
	// Problem is why the labels are not being read, "" if they are.
	Problem string `json:"problem,omitempty"`
}

// LabelerRemoved is the Problem of a labeler that is no longer configured.
const LabelerRemoved = "it is no longer in --labelers"

// LabelersPrefix is the prefix of the labelers' keys.
var LabelersPrefix = []byte{KeyLabels, labelersByte}

// DecodeLabeler reads a row.
func DecodeLabeler(key, value []byte) (l Labeler, err error) {
	l, err = FromJSON[Labeler](value)
	l.Name = string(key[len(LabelersPrefix):])
	return l, err
}
