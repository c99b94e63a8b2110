// Package dict defines the bytes of the dictionary: ids, their encoding and their shards
// (id.go, settings.go); the keys (keys.go); the forms of strings (pack.go); the groups of
// strings by id (group.go); the log of claims (claimlog.go); and the rows of leases (lease.go). It has pure
// functions only. The version of the whole store's format is package format's.
package dict
