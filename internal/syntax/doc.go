// Package syntax says which strings the AT Protocol takes: DIDs, handles, AT
// URIs, NSIDs, record keys and timestamp identifiers (TIDs). It is functions of
// their arguments alone, and may be used from any goroutine.
//
// syntax.go validates, tid.go turns TIDs into the numbers that they stand for.
// What a string means (whether a DID exists, whom a handle belongs to) is not
// known here.
//
// The validators say what indigo's atproto/syntax says, byte for byte
// (TestSyntaxAgainstIndigo and FuzzSyntax compare them). They exist because
// every event is validated: indigo's regular expressions take about 60 times as
// long (BenchmarkSyntax).
package syntax
