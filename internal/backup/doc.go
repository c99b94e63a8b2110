// Package backup makes backups of a store in a target (package target), and restores them.
//
// A store is a folder of files that are never changed once they are written, beside a few small
// ones. A checkpoint of it (pebblekv.Store.Checkpoint) is such a folder at one moment. Create sends
// those of its files that the target lacks, as parts that are named by their content, and then a
// manifest that names all of them; so the second backup sends what was written since the first. An
// interrupted backup has no manifest, so it does not count as a backup. Restore does the reverse.
// Verify reads parts and compares them with their names. Retain removes the manifests that a
// Retention does not keep, and the parts that no manifest needs any more.
//
// A target has these objects:
//
//	manifests/20261125T235416.123Z.json          a Manifest, in JSON; the name is its time
//	manifests/20261125T235416.123Z.json.minisig  its signature, if it is signed
//	parts/3f/3f2a…                               a part: 3f2a… is the SHA-256 of the file
//	parts/3f/3f2a….age-1b5c…                     the same file, encrypted with age for the keys 1b5c…
//	index.json                                   the names of the manifests: a web server lists no files
//	lock.json                                   who is writing to the target now, and until when
//	incoming/…                                   objects being written (in a folder only)
//
// The lock admits one writer at a time: a writer that finds the unexpired lock of another is refused.
// A lock expires five minutes after its writer is gone.
//
// Anyone who can write to a target can replace a backup. A signature (minisign) shows who made it,
// though not that it is the newest. Encryption (age) shows neither: it keeps readers out.
package backup
