package upgrade

import (
	"bytes"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// posts moves the ids of one slice of the step to format.FormatPostGroups into post groups. It writes one operand for each group: the
// next slice may begin within a group.
type posts struct {
	tx    kv.Txn
	group dict.PostGroup
	count int // the posts in group; 0 before the first group
	row   []byte
	w     dict.PostWriter
}

func openPosts(tx kv.Txn, _ format.Header) (visit func(key, value []byte) (int, error), end func() error) {
	p := &posts{tx: tx}
	return p.visit, p.end
}

// visit moves the id of a post. Other URIs stay, and so do posts of full groups, and malformed rows, which skein check
// reports.
func (p *posts) visit(key, value []byte) (written int, err error) {
	form := key[2:]
	g, post, ok := dict.SplitPost(form)
	id, n := dict.ReadID(value)
	if post.ID = id; !ok || n == 0 || n != len(value) || id == dict.None || post.Author == dict.None || !bytes.Equal(g.AppendForm(nil, post), form) {
		return len(key), nil
	}
	if p.count == 0 || g != p.group {
		if err := p.begin(g); err != nil {
			return 0, err
		}
	}
	if p.count >= dict.MaxPosts {
		return len(key), nil
	}
	p.count++
	p.tx.Delete(key)
	before := len(p.row)
	p.row = p.w.Append(p.row, post)
	return len(key) + len(p.row) - before, nil
}

// begin ends the last group, and begins another. The slice before may have moved some posts of the first group.
func (p *posts) begin(g dict.PostGroup) error {
	first := p.count == 0
	if err := p.end(); err != nil {
		return err
	}
	p.group, p.count, p.w = g, 0, dict.PostWriter{}
	if !first {
		return nil
	}
	row, _, err := p.tx.Get(dict.AppendPostGroupKey(nil, g))
	if err != nil {
		return err
	}
	return dict.EachPost(row, func(dict.Post) bool { p.count++; return true })
}

// end writes the last group.
func (p *posts) end() error {
	if len(p.row) > 0 {
		p.tx.Merge(dict.AppendPostGroupKey(nil, p.group), p.row)
		p.row = p.row[:0]
	}
	return nil
}

// finishPosts writes the new version.
func finishPosts(_ kv.Txn, h format.Header, _ Tally) ([]byte, error) {
	h.Version = format.FormatPostGroups
	return h.Append(nil), nil
}
