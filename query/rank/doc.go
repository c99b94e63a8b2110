// Package rank expands every member of a set of accounts along an edge, such as their likes, and
// ranks the results by how many of the members lead to each: what the people that I follow like.
//
// Read reads a ranking from the parameters of a call. Rank computes it, and Page reads the results.
package rank
