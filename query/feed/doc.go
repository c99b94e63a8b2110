// Package feed serves feeds by configuration: a file in which each feed is a name and a query.
// A Feeds reads the file, and answers Bluesky's methods for feed generators.
package feed
