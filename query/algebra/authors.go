package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// Authors returns the accounts in whose repos records are, and their ids.
func (r *Reader) Authors(records []language.Literal) (authors []language.Literal, ids []dict.ID, err error) {
	authors = make([]language.Literal, len(records))
	for i, l := range records {
		authors[i] = language.Literal{S: dict.AuthorityOf(l.S), Is: dict.DID}
	}
	ids, err = Lookup(r.View, authors)
	return authors, ids, err
}

// authorsAtOnce is how many authors are read at a time.
const authorsAtOnce = 8192

// AuthorsOf calls each with every record of a set, in order, and the account in whose repo it is. It leaves out what has no
// author, and what has no id. key is the record's own key, if it is a TID. AuthorsOf asks the budget before it reads many.
func (r *Reader) AuthorsOf(records sets.Set, each func(record, author dict.ID, key ask.Path)) error {
	if records.Len() > sets.ListMax {
		if err := r.budget.Heavy(); err != nil {
			return err
		}
	}
	var ids []dict.ID
	read := func() error {
		defer func() { ids = ids[:0] }()
		return r.View.Authors(ids, func(i int, author dict.ID, tid uint64) error {
			if author != dict.None {
				each(ids[i], author, ask.Path{TID: tid})
			}
			return r.Ended.Err()
		})
	}
	for id := range records.All() {
		if dict.ID(id) >= dict.FirstReserved {
			break // stand-in ids come last
		}
		if ids = append(ids, dict.ID(id)); len(ids) == authorsAtOnce {
			if err := read(); err != nil {
				return err
			}
		}
	}
	return read()
}

// authorsOf is AuthorsOf, and also has the authors of records without an id, if they are among the expression's strings.
func authorsOf(v *Evaluation, records sets.Set, each func(record, author dict.ID, key ask.Path)) error {
	if err := v.AuthorsOf(records, each); err != nil {
		return err
	}
	named, _ := records.Page(uint64(dict.FirstReserved)-1, int(records.Len()), sets.Set{})
	for _, id := range named {
		uri := v.Expr.Strings[dict.ID(id)-dict.FirstReserved].S
		if did, ok := dict.AuthorOf(uri); ok {
			if at := v.standIn(language.Literal{S: did, Is: dict.DID}); at != dict.None {
				each(dict.ID(id), v.literal(int(at-dict.FirstReserved)), ask.Path{TID: ask.TIDOf(dict.URI, uri)})
			}
		}
	}
	return nil
}

// authored evaluates authors(E) or by(E, S), once for each place where it stands.
func authored(v *Evaluation, n *language.Node) (set sets.Set, err error) {
	if kept, ok := v.computed[n]; ok {
		return kept, nil
	}
	of, err := v.Set(&n.Args[0])
	if err != nil {
		return set, err
	}
	var records, authors []uint64
	within := Within(n.Window)
	err = authorsOf(v, of, func(record, author dict.ID, key ask.Path) {
		if within.Has(key) {
			records, authors = append(records, uint64(record)), append(authors, uint64(author))
		}
	})
	if err != nil {
		return set, err
	}
	set = sets.FromUnsorted(slices.Clone(authors))
	if n.Op == language.OpBy {
		by, err := v.open(&n.Args[1])
		if err == nil {
			by.Set, err = v.And(sets.AndNot(set, v.View.Hidden()), by)
		}
		if err != nil {
			return set, err
		}
		kept := records[:0]
		for i, author := range authors {
			if by.Set.Has(author) {
				kept = append(kept, records[i])
			}
		}
		set = sets.FromList(kept)
	}
	v.computed[n] = set
	return set, nil
}
