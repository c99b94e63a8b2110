package say_test

import (
	"testing"

	"skein.blue/internal/say"
)

func TestHuman(t *testing.T) {
	for n, want := range map[int64][2]string{
		0:                 {"0 B", "0"},
		999:               {"999 B", "999"},
		1023:              {"1023 B", "1.0 k"},
		1536:              {"1.5 KiB", "1.5 k"},
		150_000:           {"146 KiB", "150 k"},
		1 << 30:           {"1.0 GiB", "1.1 G"},
		123_000_000:       {"117 MiB", "123 M"},
		1_048_575:         {"1.0 MiB", "1.0 M"},
		9_000_000_000_000: {"8.2 TiB", "9.0 T"},
	} {
		if b, c := say.Bytes(n), say.Count(n); b != want[0] || c != want[1] {
			t.Errorf("%d: %q and %q, want %q", n, b, c, want)
		}
	}
}
