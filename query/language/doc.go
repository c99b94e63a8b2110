// Package language is the language of set expressions, such as
//
//	intersect(followers(did:plc:a), likers(at://…), members(did:plc:b, did:plc:c))
//
// [Vocabulary.Parse] turns the text into an [Expr]. The package also reads what stands beside expressions in a question:
// names of accounts and records, times, and the weights of rankings. It knows the kinds of edges, and no store: package
// algebra evaluates expressions. docs/semantics.md says what each set means; docs/asking.md lists them for users.
package language
