package graph_test

import (
	"testing"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// The answer of an account's host and relay counts if no #account has come since they were asked, of whatever
// source.
func TestAnswerAndNewerStatus(t *testing.T) {
	for _, since := range []string{"", "relay", "other"} {
		c := newChain(t)
		var b batch.Batch
		b.AddAccount(7, []byte(chained), false, false)
		c.apply("relay", &b)
		var asked, st format.RepoState
		account := func(st *format.RepoState) {
			if err := c.s.View(t.Context(), func(v *ask.View) (err error) { *st, _, _, err = v.Account(chained); return err }); err != nil {
				t.Fatal(err)
			}
		}
		account(&asked)
		if since != "" {
			seq := format.Seq(7) // another source may have the same number
			if since == "relay" {
				seq = 8
			}
			b.Reset()
			b.AddAccount(seq, []byte(chained), false, false)
			c.apply(since, &b)
		}
		b.Reset()
		b.AddAnswer([]byte(chained), true, &asked)
		c.apply("", &b)
		if account(&st); st.Has(format.FlagHidden) != (since != "") {
			t.Errorf("after an #account of %q: %+v", since, st)
		}
	}
}
