package export_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// summed makes an export of lines, with the right sum in its last line.
func summed(accounts int, lines ...string) string {
	return ended(strings.Join(lines, "\n")+"\n", accounts, 0)
}

// ended returns an export with its last line.
func ended(text string, accounts, records int) string {
	sum := sha256.Sum256([]byte(text))
	return text + fmt.Sprintf(`{"end":{"accounts":%d,"records":%d,"sha256":"%s"}}`, accounts, records, hex.EncodeToString(sum[:])) + "\n"
}

// reopened opens a store again, to continue an import.
func reopened(t *testing.T, store *memkv.Store, settings dict.Settings) *place {
	t.Helper()
	s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings}, Import: true, Beat: time.Minute, SliceSize: 4})
	must(t, err)
	return &place{Store: s, t: t, store: store}
}

// TestImportAfterDamaged: an import leaves nothing of a damaged one before it in the same
// store, whether or not the store was reopened in between.
func TestImportAfterDamaged(t *testing.T) {
	good := small(t)
	const first, account = `{"export":4,"kinds":["follow","like"]}`, `{"account":{"did":"did:plc:a","last":{}}}`
	const letter = `{"dead":{"source":"wss://stale.com","seq":77,"reason":"stale","time":"2026-01-02T03:04:05Z"}}` // what precedes it is written with it
	for name, damaged := range map[string]string{
		"a cursor":           `{"cursor":{"source":"wss://stale.com","seq":77,"time":"2026-01-02T03:04:05Z"}}`,
		"a future cursor":    `{"cursor":{"source":"wss://stale.com","seq":77,"time":"2026-01-02T03:04:05Z","future":true}}`,
		"its own cursor":     `{"cursor":{"source":"wss://a.com","seq":77,"time":"2026-01-02T03:04:05Z"}}`,
		"a dead letter":      letter,
		"its own letter":     `{"dead":{"source":"wss://a.com","seq":77,"reason":"stale","time":"2026-01-02T03:04:05Z"}}`,
		"a letter with path": `{"dead":{"source":"wss://stale.com","seq":1,"path":"a/b","reason":"stale","time":"2026-01-02T03:04:05Z"}}`,
		"an account":         `{"account":{"did":"did:plc:a","rev":"3kaaaaaaaaa2a","root":"0000000000000000","partial":true,"last":{},"queued":{"reason":"stale","gen":7},"touched":[{"kind":1,"rkey":"c3RhbGU=","rev":7}]}}` + "\n" + letter,
		"doubts":             `{"doubts":{"lacking":{"like":{"at":"2026-01-02T03:04:05Z","sweep":1}},"hole":true,"floors":{"wss://a.com":7},"unbroken":"2026-01-02T03:04:05Z","backfill":{"archive":"stale","hosts":{"stale":{}},"swept":7}}}`,
		"a gap":              `{"gap":{"source":"wss://stale.com","after":77,"reason":"stale","time":"2026-01-02T03:04:05Z"}}`,
	} {
		for layout, settings := range layouts {
			for _, reopens := range []bool{false, true} {
				p := open(t, settings, true)
				// A truncated export, and one with a wrong end.
				refused(t, p, name, first+"\n"+damaged+"\n")
				refused(t, p, name, first+"\n"+damaged+"\n"+account+"\n"+`{"end":{"accounts":1,"records":0,"sha256":"00"}}`)
				unfinished(t, p.store)
				if reopens {
					p.close()
					p = reopened(t, p.store, settings)
				}
				if _, err := export.Read(t.Context(), p.Store, strings.NewReader(good), nil); err != nil {
					t.Fatalf("%s, %s, reopens=%v: %v", name, layout, reopens, err)
				}
				p.close()
				if got := exported(t, p.store); got != good {
					t.Errorf("%s, %s, reopens=%v: the export became\n%s\nand was\n%s", name, layout, reopens, got, good)
				}
				must(t, check.Store(t.Context(), p.store, func(problem string) { t.Errorf("%s, %s: %s", name, layout, problem) }, nil))
			}
		}
	}
}

// TestBytesAfterTheEnd: a file that continues after an export's end is refused. It has two
// exports, or one that overwrote a longer one.
func TestBytesAfterTheEnd(t *testing.T) {
	good := small(t)
	p := open(t, layouts["one"], true)
	for name, rest := range map[string]string{
		"a byte":        "x",
		"a null":        "\x00",
		"a space":       " ",
		"an empty line": "\n",
		"an object":     "{}\n",
		"another end":   good[strings.LastIndex(good[:len(good)-1], "\n")+1:],
		"itself":        good,
		"an account":    `{"account":{"did":"did:plc:late","last":{}}}` + "\n",
	} {
		_, err := export.Read(t.Context(), p.Store, strings.NewReader(good+rest), nil)
		if err == nil || !strings.Contains(err.Error(), "continues after the export's end in line") {
			t.Errorf("%s: %v", name, err)
		}
	}
	finish(t, p, good)
}
