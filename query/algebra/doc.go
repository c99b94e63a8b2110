// Package algebra is the language of set expressions, such as
//
//	intersect(followers(did:plc:a), likers(at://…), members(did:plc:b, did:plc:c))
//
// and its evaluation. [Parse] turns the text into an [Expr]; [NewEvaluation] looks up the
// strings that it names in one snapshot of the graph ([ask.View]) and computes the members,
// a page of them, their number, or whether one string is a member.
//
// The package knows neither HTTP nor the watcher; package query and package watch use it.
// docs/semantics.md says what each set means; docs/asking.md lists them for users.
package algebra
