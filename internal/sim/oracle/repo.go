package oracle

import "cmp"

// A Repo is the state of a repo and of its account. Rev is a revision, zero if there is
// none; Root identifies the content.
type Repo[Rev cmp.Ordered, Root comparable] struct {
	Rev     Rev
	Root    Root
	Partial bool // its history was never seen
	Desync  bool // events were missed
	Hidden  bool // its account is inactive
}

// A Commit is the header of a commit.
type Commit[Rev cmp.Ordered, Root comparable] struct {
	Rev, Since Rev
	Root       Root
	Prev       *Root // nil if the commit has none
	TooBig     bool
	Damaged    bool // cannot be read completely
}

// Commit applies a commit, and reports whether its operations apply
// (docs/semantics.md#s9, #s15 to #s19).
func (r *Repo[Rev, Root]) Commit(c Commit[Rev, Root]) (applies bool) {
	var none Rev
	if r.Rev != none && c.Rev <= r.Rev {
		return false
	}
	r.Desync = r.Desync || c.TooBig || c.Damaged
	if c.Damaged {
		return false
	}
	if r.Rev == none {
		r.Partial = r.Partial || c.Since != none
	} else if c.Since != r.Rev || c.Prev != nil && *c.Prev != r.Root {
		r.Desync = true
	}
	r.Rev, r.Root = c.Rev, c.Root
	return true
}

// Sync applies a #sync.
func (r *Repo[Rev, Root]) Sync(rev Rev, root Root) {
	var none Rev
	if r.Rev == none || root != r.Root {
		r.Desync = true
		return
	}
	r.Rev = max(r.Rev, rev)
}

// Account applies an #account, and reports whether it deleted the account with all its
// records.
func (r *Repo[Rev, Root]) Account(active, deleted bool) (erased bool) {
	if erased = !active && deleted; erased {
		*r = Repo[Rev, Root]{}
	}
	r.Hidden = !active
	return erased
}
