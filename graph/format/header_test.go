package format

import (
	"errors"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// TestHeadersRefused decodes malformed headers.
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
	} {
		if h, err := DecodeHeader(v); err == nil {
			t.Errorf("a header %s is read: %x as %+v", name, v, h)
		}
	}
	if h, err := DecodeHeader(with(func(h *Header) { h.Settings.ShardBits = 0 })); !errors.Is(err, dict.ErrSettings) {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := HeaderVersion(nil); err == nil {
		t.Error("an empty header has a version")
	}
	if version, err := HeaderVersion(good.Append(nil)); version != Newest || err != nil {
		t.Errorf("%+v is of version %d, %v", good, version, err)
	}
}
