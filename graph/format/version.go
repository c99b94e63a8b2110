package format

// A Version is a version of the format of everything in a store: of this package's keys and
// values, and of package dict's. The store's Header and its engine (write.Merger.Name) have it.
// A program opens only stores of its own version, which is Newest.
type Version uint8

// Newest is the version of the stores that this program makes. A change of any byte in a store raises it.
const Newest Version = 20

// Advice says what to do with a store of another version.
const Advice = "index again into a new store, or export it with the version of skein that made it, and import the file into a new store"
