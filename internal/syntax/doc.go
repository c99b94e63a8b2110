// Package syntax validates the strings of the AT Protocol: DIDs, handles, AT
// URIs, NSIDs and record keys (syntax.go). It also validates timestamp identifiers
// (TIDs) and converts them to numbers (tid.go). All functions are pure. They do not
// resolve anything, such as whether a DID exists or who owns a handle.
//
// The validators accept exactly the strings that indigo's atproto/syntax accepts
// (TestSyntaxAgainstIndigo and FuzzSyntax compare them). They exist because
// every event is validated: indigo's regular expressions take about 60 times as
// long (BenchmarkSyntax).
package syntax
