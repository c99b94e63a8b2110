package format

// A Version is a version of the format of everything in a store: of this package's keys and
// values, and of package dict's. The store's Header names it. A program opens stores of the
// Newest version only; package upgrade migrates older ones, one version at a time.
//
// A new version needs a constant here that says what it changes, a step in upgrade.Steps,
// and Newest. A constant never changes its number or its meaning.
type Version uint8

const (
	// FormatAccountGroups keeps the states of 256 neighbouring accounts in one value, and
	// folds them. The header is the version alone; the settings of the dictionary have a row
	// of their own (OldSettingsKey). All such stores index follows, likes, reposts and
	// blocks, the kinds 1 to 4.
	//
	// It is the oldest version that can be migrated. Version 1 had a key for each edge and
	// direction, version 2 a key for each account.
	FormatAccountGroups Version = 3

	// FormatOneHeader puts the settings of the dictionary and the indexed kinds into the
	// header, and drops OldSettingsKey.
	//
	// Migration: one write of the header.
	FormatOneHeader Version = 4

	// FormatResyncs adds the queue of repos to fetch (KeyResync), the paths that the stream
	// touches meanwhile (KeyTouched), how far a backfill came (KeyBackfill), a second byte
	// of flags to the state of an account, and Counts.Complete. States without the new flags
	// keep their form.
	//
	// Migration: counts the complete accounts.
	FormatResyncs Version = 5

	// FormatHoles adds the holes of the stream (KeyHoles) and Counts.Incomplete, and excludes
	// queued accounts from Counts.Complete. A kind that was added late waits for a sweep
	// (KeyLacking holds a Lack per kind); before, KeyLacking held times.
	//
	// Migration: counts both again, notes a hole if a gap is newer than the last comparison
	// of all repos, and turns the times of KeyLacking into sweeps.
	FormatHoles Version = 6

	// FormatDates adds the dates of the members of large sets (KeyDates), and the forms of rows that
	// have dates. Rows without dates keep their form.
	//
	// Migration: reads all records, and gives each member in a container its date.
	FormatDates Version = 7

	// FormatRepeated adds the form of rows that names the repeated members: those that may have several
	// records. Rows without such members keep their form.
	//
	// It also adds the date OneRecord. Before, that number was a date like others.
	//
	// Migration: reads all records, and adds the members with several records again. Members with the
	// date whose number is OneRecord now become Undated.
	FormatRepeated Version = 8

	// FormatPacked adds the packed form of chunks (packed.go). All other chunks, and operands, keep their form; a chunk that could be packed
	// need not be.
	//
	// Migration: packs the chunks that can be.
	FormatPacked Version = 9

	// FormatRowGroups puts the rows of likers and reposters into groups (KeyRows), in stores with one writer. An operand that has a
	// generation now replaces the row; before, no operand had one.
	//
	// Migration: moves the rows.
	FormatRowGroups Version = 10

	// FormatPostGroups puts the ids of posts' URIs into groups by time (dict.KeyPosts), in stores with one writer.
	//
	// Migration: moves the ids.
	FormatPostGroups Version = 11
)

const (
	// Oldest is the oldest version that package upgrade migrates.
	Oldest = FormatAccountGroups
	// Newest is the version of the stores that this program makes, and the only one that it
	// opens.
	Newest = FormatPostGroups
)
