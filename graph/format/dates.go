package format

// Each member of a reverse set has a date, which says what is known of its records of the edge. It is
//
//   - Undated if the member may have several records;
//   - OneRecord if it has one, whose time is not stored: because the record's key is not a TID, or names a time outside of the range of
//     dates, or because the set was small, and its row kept no dates (Row);
//   - otherwise the second since 1970 of its only record.
//
// So a window on a large set, or its order by time, does not have to read the records of every member; and a writer that deletes a record
// knows from the set whether it has to look for others.

// Undated is the date of a member that may have several records.
const Undated = 1<<32 - 1

// OneRecord is the date of a member that has one record, whose own date is not stored.
const OneRecord = 1<<32 - 2

// DateOf returns the date of a record's path.
func DateOf(p Path) uint32 {
	const second = 1_000_000
	if !p.HasTime() || p.TID>>ClockBits >= OneRecord*second {
		return OneRecord
	}
	return uint32(p.TID >> ClockBits / second)
}
