// Package algebra evaluates set expressions (package language) on one snapshot of the graph ([ask.View]). [NewEvaluation]
// looks up the strings that an expression names; an [Evaluation] computes the members, a page of them, their number, or
// whether one string is a member. A [Tally] is the inner loop of rankings.
//
// The package knows neither HTTP nor the watcher; packages query and watch use it. docs/semantics.md says what each set
// means. Some functions take an Evaluation first, as its methods would: a type has at most 30 (make house).
package algebra
