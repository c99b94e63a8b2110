// Package dict defines the bytes of the dictionary: ids, their encoding and their shards
// (id.go, settings.go); the keys (keys.go); the forms of strings (pack.go); the groups of
// strings by id (group.go); and the rows of leases (lease.go). It
// also validates the strings themselves: DIDs, handles, AT URIs, NSIDs and record keys (syntax.go),
// and timestamp identifiers, which it converts to numbers (tid.go). It has pure functions only, and
// resolves nothing. The version of the whole store's format is package format's.
//
// The validators accept exactly the strings that indigo's atproto/syntax accepts
// (TestSyntaxAgainstIndigo and FuzzSyntax compare them). They exist because
// every event is validated, and indigo's regular expressions take about 60 times as long.
package dict
