package kinds_test

import (
	"testing"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Every built-in row is unique, valid, and complete.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	once := func(k kinds.Info, what, name string) {
		if name == "" || seen[what+name] {
			t.Errorf("%s: the %s %q is empty, or not unique", k.Name, what, name)
		}
		seen[what+name] = true
	}
	numbers := map[kinds.Kind]bool{kinds.Hidden: true}
	for _, k := range kinds.All {
		once(k, "name", k.Name)
		once(k, "source", k.Source())
		if k.HasSets() {
			once(k, "operator", k.Forward)
			once(k, "operator", k.Reverse)
		}
		if numbers[k.Kind] {
			t.Errorf("%s: number %d is taken", k.Name, k.Kind)
		}
		numbers[k.Kind] = true
		if k.Kind.Info().Name != k.Name || k.Kind.String() != k.Name || kinds.ByName(k.Name).Kind != k.Kind {
			t.Errorf("%s is not found by its number and name", k.Name)
		}
		if _, err := syntax.ParseNSID(k.Collection); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
		if len(k.To.Field) == 0 || k.To.Is() != dict.DID && k.To.Is() != dict.URI {
			t.Errorf("%s has the subject %v: a record must name it", k.Name, k.To)
		}
		if isAccount := k.Object == "account"; k.HasSets() && (k.Verb == "" || isAccount != (k.To.Is() == dict.DID) || !isAccount && k.Object != "post" && k.Object != "list") {
			t.Errorf("%s: an account %ss a %s", k.Name, k.Verb, k.Object)
		}
		if k.Kind >= kinds.FirstConfigured || k.HasSets() != (k.Forward != "") {
			t.Errorf("%s has the number %d, and the sets %q and %q", k.Name, k.Kind, k.Forward, k.Reverse)
		}
		if of := kinds.BuiltIn.Collection(k.Collection); of == nil || kinds.BuiltIn.CollectionOf([]byte(k.Collection+"/x")) != of || kinds.BuiltIn.CollectionOf([]byte(k.Collection)) != nil {
			t.Errorf("%s is not found by its collection", k.Name)
		}
	}
	if kinds.Kind(200).Info() != nil || kinds.Kind(200).String() != "kind(200)" || kinds.ByName("no") != nil {
		t.Error("an unknown kind has a row")
	}
}
