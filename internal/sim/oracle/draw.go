package oracle

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"skein.blue/graph/kinds"
)

// A Draw makes texts of random expressions, of some accounts and records or of any.
type Draw struct {
	*rand.Rand

	Accounts, Records, Times []string
	Labelers                 []string // of Accounts
}

// One returns one of some strings.
func (d Draw) One(of ...string) string { return of[d.IntN(len(of))] }

// maybeQuoted puts a DID or an AT URI in double quotes, sometimes.
func (d Draw) maybeQuoted(name string) string {
	if (kinds.DID.Valid([]byte(name)) || kinds.ATURI.Valid([]byte(name))) && d.IntN(6) == 0 {
		return strconv.Quote(name)
	}
	return name
}

func (d Draw) space() string { return d.One("", "", "", " ", "\n\t", "  ", "\r\n") }

func (d Draw) account() string { return d.maybeQuoted(d.Name()) }

// Name returns the name of an account.
func (d Draw) Name() string {
	if d.Accounts != nil {
		return d.One(d.Accounts...)
	}
	return d.One("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb", "did:web:n4.example.com", "did:web:localhost%3A80", "@alice.example.com", "$viewer",
		"https://bsky.app/profile/did:plc:cccccccccccccccccccccccc", "https://bsky.app/profile/bob.example.com/?x=1#y")
}

func (d Draw) record() string {
	if d.Records != nil {
		return d.maybeQuoted(d.One(d.Records...))
	}
	return d.maybeQuoted(d.One("at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3kaaaaaaaaaaa", "at://did:web:n4.example.com/app.bsky.graph.list/self", "at://alice.example.com/app.bsky.feed.post/3kaaaaaaaaaaa",
		"at://$viewer/app.bsky.graph.list/x", "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "https://bsky.app/profile/bob.example.com/post/3kaaaaaaaaaaa", "https://bsky.app/profile/did:web:n4.example.com/lists/x"))
}

// text draws a string in double quotes that only texts can be.
func (d Draw) text() string {
	return d.One(`"cats"`, `"a, (b) \\ \"c\"\n"`, `"\ud83d\ude00"`, `" "`, `"@alice.example.com"`, `"https://example.com/a,b"`, `"at://Alice.example.com/x.y.z/1"`)
}

// Window returns the options since or until, or both.
func (d Draw) Window() string {
	since := d.One("2026-11-01", "2026-11-01T00:00:00.123456Z", "2025-01-01T00:00:00+02:00", "7d", "24h", "2w", "90m", "1h30m")
	until := d.One("2026-11-22", "2026-11-22T11:59:59.5Z", "1m", "5s", "0s")
	if d.Times != nil {
		i := d.IntN(len(d.Times) - 1)
		since, until = d.Times[i], d.Times[i+1+d.IntN(len(d.Times)-i-1)]
	}
	switch d.IntN(3) {
	case 0:
		return "since=" + since
	case 1:
		return "until=" + until
	}
	return d.One("since="+since+d.space()+","+d.space()+"until="+until, "until="+until+","+d.space()+"since="+since)
}

// Expr draws an expression of DIDs or of URIs.
func (d Draw) Expr(dids bool, depth int) string {
	sp := d.space
	if depth == 0 || d.IntN(3) == 0 {
		member := d.record
		if dids {
			member = d.account
		}
		if d.IntN(5) == 0 {
			args := []string{sp() + member() + sp()}
			if !dids && d.IntN(2) == 0 { // what comes after a text may be any string
				args = []string{sp() + d.text() + sp(), d.One(d.text(), `"did:web:n4.example.com"`)}
			}
			for range d.IntN(4) {
				args = append(args, sp()+member()+sp())
			}
			return sp() + "members" + sp() + "(" + strings.Join(args, ",") + ")" + sp()
		}
		if d.Labelers != nil && d.IntN(7) == 0 {
			on := ",on=records"
			if dids {
				on = d.One("", ", on=accounts")
			}
			if d.IntN(3) == 0 {
				on += "," + d.Window()
			}
			return "labeled(" + d.One(d.Labelers...) + sp() + "," + d.One("spam", "!hide", `"two words"`, "never") + on + ")"
		}
		name, arg := d.One("likes", "reposts", "listblocks", "lists"), d.account()
		if dids {
			if name, arg = d.One("follows", "followers", "blocks", "blockers"), d.account(); d.IntN(2) == 0 {
				name, arg = d.One("likers", "reposters", "listblockers", "listed"), d.record()
			}
		}
		if d.IntN(3) == 0 {
			arg += sp() + "," + sp() + d.Window()
		}
		return sp() + name + sp() + "(" + sp() + arg + sp() + ")" + sp()
	}
	if d.IntN(4) == 0 {
		return d.ranking(dids, depth, d.IntN(2) == 0)
	}
	if d.IntN(7) == 0 {
		of := d.Expr(false, depth-1)
		if !dids {
			return sp() + "by" + sp() + "(" + of + "," + d.Expr(true, depth-1) + ")" + sp()
		}
		return sp() + "authors" + sp() + "(" + of + d.One("", "", sp()+","+sp()+d.Window()) + ")" + sp()
	}
	var args []string
	for range 1 + d.IntN(3) {
		args = append(args, d.Expr(dids, depth-1))
	}
	if d.IntN(6) == 0 {
		seed := d.One("", sp()+","+sp()+"seed=0", ","+sp()+"seed=7"+sp(), ",seed=18446744073709551615")
		return sp() + "sample" + sp() + "(" + args[0] + fmt.Sprint(",", sp(), 1+d.IntN(12)) + seed + ")" + sp()
	}
	if d.IntN(5) == 0 {
		return sp() + fmt.Sprint("atleast", sp(), "(", sp(), 1+d.IntN(len(args)), sp()) + "," + strings.Join(args, ",") + ")" + sp()
	}
	return sp() + d.One("intersect", "union", "except") + sp() + "(" + strings.Join(args, ",") + ")" + sp()
}

// ranking draws a ranking of DIDs or of URIs, and perhaps with top: a rank(…) or a blend(…).
func (d Draw) ranking(dids bool, depth int, top bool) string {
	if depth <= 1 || d.IntN(3) > 0 {
		return d.rank(dids, depth, top)
	}
	var args []string
	for range 1 + d.IntN(2) {
		args = append(args, d.space()+d.One("1", "2.5", ".25", "30")+d.space(), d.ranking(dids, depth-1, d.IntN(3) == 0))
	}
	if top {
		args = append(args, fmt.Sprint(d.space(), "top", d.space(), "=", 1+d.IntN(12)), fmt.Sprint("min=", d.space(), 1+d.IntN(3)))
	}
	if d.IntN(3) == 0 {
		args = append(args, d.space()+"except="+d.Expr(dids, depth-1))
	}
	return d.space() + "blend" + d.space() + "(" + strings.Join(args, ",") + ")" + d.space()
}

// rank draws a rank(…) of DIDs or of URIs, with its arguments in any order, and perhaps with top.
func (d Draw) rank(dids bool, depth int, top bool) string {
	sp := d.space
	depth = max(depth, 1)
	from := d.IntN(3) > 0 || !dids
	via := d.One("likes", "reposts", "listblocks", "lists")
	if dids && from {
		via = d.One("follows", "followers", "blocks", "blockers")
	} else if dids {
		via = d.One("likers", "reposters", "listblockers", "listed", "authors")
	}
	var args []string
	if d.IntN(3) == 0 {
		args = append(args, "of"+sp()+"="+d.ranking(from, depth-1, true), "weigh"+sp()+"="+sp()+"score")
	} else {
		args = append(args, "of"+sp()+"="+d.Expr(from, depth-1))
	}
	args = append(args, "via"+sp()+"="+sp()+via)
	if d.IntN(3) == 0 && !strings.HasPrefix(via, "list") && via != "authors" || via == "listblocks" {
		args = append(args, "damp="+d.One("0", "0.5", "1", ".25", "1e-1"))
	}
	if d.IntN(3) == 0 {
		args = append(args, "decay="+sp()+d.One("6h", "12w", "100d", "1h30m"))
	}
	if d.IntN(2) == 0 {
		args = append(args, fmt.Sprint("min", sp(), "=", sp(), 1+d.IntN(3)))
	}
	if top {
		args = append(args, fmt.Sprint("top=", 1+d.IntN(12)))
	}
	if d.IntN(3) == 0 {
		args = append(args, "except="+d.Expr(dids, depth-1))
	}
	if d.IntN(3) == 0 {
		args = append(args, d.Window())
	}
	d.Shuffle(len(args), func(i, j int) { args[i], args[j] = args[j], args[i] })
	for i := range args {
		args[i] = sp() + args[i] + sp()
	}
	return sp() + "rank" + sp() + "(" + strings.Join(args, ",") + ")" + sp()
}
