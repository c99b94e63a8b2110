package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// Authors returns the accounts in whose repos records are, and their ids. Accounts are their own.
func (r *Reader) Authors(records []language.Literal) (authors []language.Literal, ids []dict.ID, err error) {
	authors = AuthorsIn(records)
	ids, err = Lookup(r.View, authors)
	return authors, ids, err
}

// AuthorsIn returns the accounts in whose repos records are. Accounts are their own.
func AuthorsIn(records []language.Literal) []language.Literal {
	authors := make([]language.Literal, len(records))
	for i, l := range records {
		authors[i] = language.Literal{S: dict.AuthorityOf(l.S), Is: dict.DID}
	}
	return authors
}

// authorsAtOnce is how many authors are read at a time.
const authorsAtOnce = 8192

// AuthorsOf calls each with the records of a set, in order, and the account in whose repo each is, unless it has no author. key is the
// record's own. Of records without an id, it knows those whose authors are among the expression's strings. It asks the budget before it
// reads many.
func AuthorsOf(v *Evaluation, records sets.Set, each func(record, author dict.ID, key ask.Path)) error {
	if records.Len() > sets.ListMax {
		if err := v.budget.Heavy(); err != nil {
			return err
		}
	}
	all := IDs(records.List(nil))
	stored, _ := slices.BinarySearch(all, dict.FirstReserved)
	for ids := range slices.Chunk(all[:stored], authorsAtOnce) {
		err := v.View.Authors(ids, func(i int, author dict.ID, tid uint64) error {
			if author != dict.None {
				each(ids[i], author, ask.Path{TID: tid})
			}
			return v.Ended.Err()
		})
		if err != nil {
			return err
		}
	}
	for _, id := range all[stored:] {
		uri := v.Expr.Strings[id-dict.FirstReserved].S
		did, ok := dict.AuthorOf(uri)
		if at := standIn(v, language.Literal{S: did, Is: dict.DID}); ok && at != dict.None {
			each(id, literal(v, int(at-dict.FirstReserved)), ask.Path{TID: ask.TIDOf(dict.URI, uri)})
		}
	}
	return nil
}

// authored evaluates authors(E) or by(E, S).
func authored(v *Evaluation, n *language.Node) (set sets.Set, err error) {
	of, err := v.Set(&n.Args[0])
	if err != nil {
		return set, err
	}
	var records, authors []uint64
	within := Within(n.Window)
	err = AuthorsOf(v, of, func(record, author dict.ID, key ask.Path) {
		if within.Has(key) {
			records, authors = append(records, uint64(record)), append(authors, uint64(author))
		}
	})
	if err != nil {
		return set, err
	}
	if set = sets.FromUnsorted(slices.Clone(authors)); n.Op == language.OpAuthors {
		return set, nil
	}
	by, err := v.open(&n.Args[1])
	if err == nil {
		set, err = v.And(sets.AndNot(set, v.View.Hidden()), by)
	}
	kept := records[:0]
	for i, author := range authors {
		if set.Has(author) {
			kept = append(kept, records[i])
		}
	}
	return sets.FromList(kept), err
}
