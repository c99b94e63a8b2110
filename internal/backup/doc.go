// Package backup makes backups of a store in a target (a folder, or a bucket of an S3-compatible
// service), and restores them. It knows files, and nothing of what is in them.
//
// A store is a folder of files that are never changed once they are written, beside a few small
// ones. A checkpoint of it (pebblekv.Store.Checkpoint) is such a folder at one moment. Create sends
// those of its files that the target lacks, as parts that are named by their content, and then a
// manifest that names all of them; so the second backup sends what was written since the first. An
// interrupted backup has no manifest, so it does not count as a backup. Then Create removes all but
// the newest backups, and the parts that none of these needs. Restore writes the files of a backup,
// and compares each with its hash. Verify does that without writing.
//
// A target has these objects:
//
//	manifests/20261125T235416.123Z.json          a Manifest, in JSON; the name is its time
//	manifests/20261125T235416.123Z.json.minisig  its signature, if it is signed
//	parts/3f/3f2a…                               a part: 3f2a… is the SHA-256 of the file
//	index.json                                   the names of the manifests: a web server lists no files
//	lock.json                                    who is writing to the target now, and until when
//
// The lock admits one writer at a time: a writer that finds the unexpired lock of another is refused.
// A lock expires five minutes after its writer is gone.
//
// Anyone who can write to a target can replace a backup. A signature (minisign) shows who made it,
// though not that it is the newest.
package backup
