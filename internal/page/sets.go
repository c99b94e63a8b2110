package page

import (
	"cmp"
	"strings"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Set is a set or an operator of expressions, with the words that the page needs, which keeps no list of its own.
type Set struct {
	Name    string `json:"name"`
	Meaning string `json:"meaning"`
	// Title is the heading of the set on the page of an account, a post or a list; "" means Name.
	Title string `json:"title,omitempty"`
	// Of is the argument, "" for an operator, and Members are the members, "" if they depend on it: account, post, list or record.
	Of      string `json:"of,omitempty"`
	Members string `json:"members,omitempty"`
	// Takes has the arguments and options of an operator, as the page reads them (static/loose.js).
	Takes string `json:"takes,omitempty"`
	// Inverse is the set that leads back from a member, "" if there is none.
	Inverse string `json:"inverse,omitempty"`
	// Which and WhichNot ask which accounts or records are in the set, or not, before its argument: "are liked by".
	Which    string `json:"which,omitempty"`
	WhichNot string `json:"whichNot,omitempty"`
	// Deed goes before the count of a result in a ranking via the set ("liked by"), Heading before what is ranked ("Posts liked by").
	Deed    string `json:"deed,omitempty"`
	Heading string `json:"heading,omitempty"`
}

// operators and the sets of list members are not kinds.
var operators = []Set{
	{Name: "listed", Meaning: "accounts on a list", Title: "Accounts on it", Of: "list", Members: "account", Inverse: "lists", Which: "are on", WhichNot: "are not on"},
	{Name: "lists", Meaning: "lists that an account is on", Title: "Lists it is on", Of: "account", Members: "list", Inverse: "listed", Which: "include", WhichNot: "do not include"},
	{Name: "intersect", Meaning: "what is in every one of the sets", Takes: "set…"},
	{Name: "union", Meaning: "what is in at least one of the sets", Takes: "set…"},
	{Name: "except", Meaning: "what is in the first set and in none of the others", Takes: "set…"},
	{Name: "atleast", Meaning: "what is in at least N of the sets: atleast(2, …, …, …)", Takes: "number set…"},
	{Name: "sample", Meaning: "a random sample of N members; repeating the query gives the same ones: sample(…, 100)", Takes: "set number seed="},
	{Name: "authors", Meaning: "accounts that created the posts, lists or other records in a set: authors(likes(…))", Members: "account", Takes: "records since= until="},
	{Name: "by", Meaning: "records in a set whose author is in another: by(likes(…), follows(…))", Members: "record", Takes: "records accounts"},
	{Name: "mutuals", Meaning: "accounts that an account follows and that follow it back", Members: "account", Takes: "account"},
	{Name: "blocking", Meaning: "accounts that an account blocks, directly or through lists", Members: "account", Takes: "account"},
	{Name: "blockedBy", Meaning: "accounts that block an account, directly or through lists", Members: "account", Takes: "account"},
	{Name: "within", Meaning: "accounts that an account reaches by following, and by whom these follow: within(…, 2)", Members: "account", Takes: "account 1|2"},
	{Name: "labeled", Meaning: "what a labeler has given a label: labeled(LABELER, spam)", Takes: "account label since= until= on="},
	{Name: "members", Meaning: "the accounts, posts or lists that you name, as a set", Takes: "subject…"},
	{Name: "rank", Meaning: "posts or accounts by how many in a set like, follow, … them: rank(of=SET, via=likes)", Takes: "of= via= except= since= until= subjectsSince= by= min= top= weigh= damp= decay= exact="},
	{Name: "blend", Meaning: "a weighted sum of rankings: blend(3, rank(…), 1, rank(…))", Takes: "number ranking… min= top= except="},
}

// setsOf returns the sets of a table of kinds, and the operators.
func setsOf(table *kinds.Table) (all []Set) {
	for i := range table.All {
		k := &table.All[i]
		if k.Reverse != "" {
			all = append(all, reverseSet(k))
		}
		if k.Forward != "" {
			all = append(all, forwardSet(k))
		}
		if k.Records != "" {
			all = append(all, Set{Name: k.Records, Meaning: k.Collection + " records that link to " + one(subject(k)), Of: subject(k), Members: "record", Which: "are in the " + k.Records + " of", WhichNot: "are not in the " + k.Records + " of"})
		}
	}
	return append(all, operators...)
}

// subject returns what a kind's edges lead to.
func subject(k *kinds.Info) string {
	if k.To.Is() == dict.DID {
		return "account"
	}
	return cmp.Or(k.Object, "record")
}

// reverseSet describes the set of the actors of a subject. A configured kind has no verb.
func reverseSet(k *kinds.Info) Set {
	s := Set{Name: k.Reverse, Of: subject(k), Members: "account", Inverse: k.Forward}
	if k.Verb == "" {
		s.Meaning, s.Which, s.WhichNot = "accounts with "+k.Collection+" records that link to "+one(s.Of), "are in the "+k.Reverse+" of", "are not in the "+k.Reverse+" of"
		return s
	}
	s.Meaning, s.Which, s.WhichNot = "accounts that "+k.Verb+" "+one(s.Of)+directly(k), k.Verb, "do not "+k.Verb
	s.Deed, s.Heading = thirdPerson(k.Verb), "Accounts that "+k.Verb
	if s.Of != "account" {
		s.Title = capital(participle(k.Verb)) + " by"
	}
	return s
}

// directly distinguishes the sets of blocks from blocking and blockedBy, which include blocks through lists.
func directly(k *kinds.Info) string {
	if k.Name == "block" {
		return ", directly"
	}
	return ""
}

// forwardSet describes the set of the subjects of an actor.
func forwardSet(k *kinds.Info) Set {
	s := Set{Name: k.Forward, Of: "account", Members: subject(k), Inverse: k.Reverse}
	if k.Verb == "" {
		s.Meaning, s.Which, s.WhichNot = s.Members+"s that an account links to with "+k.Collection+" records", "are in the "+k.Forward+" of", "are not in the "+k.Forward+" of"
		if k.Kind.IsSelf() {
			s.Meaning = k.Collection + " records of an account"
		}
		return s
	}
	by := participle(k.Verb) + " by"
	s.Meaning, s.Which, s.WhichNot = s.Members+"s that an account "+thirdPerson(k.Verb)+directly(k), "are "+by, "are not "+by
	s.Deed, s.Heading = by, capital(s.Members)+"s "+by
	if s.Members != "account" {
		s.Title = capital(s.Members) + "s it " + thirdPerson(k.Verb)
	}
	return s
}

// one puts the article before a noun.
func one(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}

// capital makes the first letter of a word a capital.
func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// thirdPerson and participle inflect a regular verb.
func thirdPerson(verb string) string { return verb + "s" }

func participle(verb string) string { return strings.TrimSuffix(verb, "e") + "ed" }
