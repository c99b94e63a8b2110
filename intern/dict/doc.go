// Package dict is the dictionary's format: ids, their written form and the shards that they
// are drawn from (id.go, settings.go), the keys of the dictionary (keys.go), how strings lie
// there (pack.go), in groups on the way back from ids to strings (group.go), and the rows of
// leases (lease.go). It is pure functions, of their arguments alone, and part of the format
// of the store that package format describes and numbers.
package dict
