package format

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// TestHeadersRefused decodes malformed headers and settings.
func TestHeadersRefused(t *testing.T) {
	good := Header{Version: Newest, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{1, 4}}
	with := func(change func(h *Header)) []byte {
		h := good
		h.Kinds = slices.Clone(h.Kinds)
		change(&h)
		return h.Append(nil)
	}
	for name, v := range map[string][]byte{
		"of no version":          {},
		"of a version alone":     {byte(Newest)},
		"of an older version":    with(func(h *Header) { h.Version = Newest - 1 }),
		"of a newer version":     with(func(h *Header) { h.Version = Newest + 1 }),
		"of no shards":           with(func(h *Header) { h.Settings.ShardBits = 0 }),
		"of too many shards":     with(func(h *Header) { h.Settings.ShardBits = 33 }),
		"of leases of three":     with(func(h *Header) { h.Settings.LeaseSize = 3 }),
		"of no partitions":       with(func(h *Header) { h.Settings.Partitions = 0 }),
		"of kinds that descend":  with(func(h *Header) { slices.Reverse(h.Kinds) }),
		"of a kind twice":        with(func(h *Header) { h.Kinds[1] = h.Kinds[0] }),
		"of fewer kinds than it": good.Append(nil)[:9],
		"that goes on":           append(good.Append(nil), 7),
		"being upgraded":         AppendUpgrading(nil, good.Append(nil)),
	} {
		if h, err := DecodeHeader(v); err == nil {
			t.Errorf("a header %s is read: %x as %+v", name, v, h)
		}
	}
	if h, err := DecodeHeader(with(func(h *Header) { h.Settings.ShardBits = 0 })); !errors.Is(err, dict.ErrSettings) {
		t.Errorf("%+v, %v", h, err)
	}
	for name, v := range map[string][]byte{
		"none": {}, "another number": {1, 14, 0, 1, 0, 0}, "cut": {2, 14, 0, 1, 0}, "that go on": {2, 14, 0, 1, 0, 0, 1, 0},
		"no shards": {2, 0, 0, 1, 0, 0}, "no partitions": {2, 14, 0, 1, 0, 0, 0}, "three partitions": {2, 14, 0, 1, 0, 0, 3},
	} {
		if s, err := DecodeOldSettings(v); err == nil {
			t.Errorf("settings, %s: %x is read as %v", name, v, s)
		}
	}
}

// TestUpgradingHeader: the header of a store whose upgrade is under way contains the older
// header, and does not decode.
func TestUpgradingHeader(t *testing.T) {
	before := (&Header{Version: Newest, Settings: dict.SharedSettings, Kinds: []kinds.Kind{1}}).Append(nil)
	for _, was := range [][]byte{{3}, before, bytes.Repeat([]byte{0xff}, 3)} {
		v := AppendUpgrading([]byte("x"), was)
		if got := UpgradingHeader(v[1:]); !bytes.Equal(got, was) || v[0] != 'x' {
			t.Errorf("%x is %x, which was %x", was, v, got)
		}
		if version, err := HeaderVersion(v[1:]); version == Newest || err != nil {
			t.Errorf("%x is of version %d, %v", v[1:], version, err)
		}
	}
	for _, v := range [][]byte{nil, {}, {0xff}, {3}, before} {
		if was := UpgradingHeader(v); was != nil {
			t.Errorf("%x was %x", v, was)
		}
	}
	if _, err := HeaderVersion(nil); err == nil {
		t.Error("an empty header has a version")
	}
	if version, err := HeaderVersion(before); version != Newest || err != nil {
		t.Errorf("%x is of version %d, %v", before, version, err)
	}
}
