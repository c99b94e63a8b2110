package batch

import "skein.blue/graph/format"

// The words of decoders. Package format says how the store keeps them.
type (
	// Seq is the number of an event in its source.
	Seq = format.Seq
	// Rev is the revision of a repo.
	Rev = format.Rev
	// Gap is a place in the stream where events may be missing.
	Gap = format.Gap
	// DeadLetter is input that was dropped.
	DeadLetter = format.DeadLetter
)

// A Label is one statement of a labeler.
type Label struct {
	format.LabelEntry

	Labeler string // its DID
	Subject string // a DID or an AT URI
	Value   string
}

// MaxLabelTime is the largest time of a label, in microseconds since 1970.
const MaxLabelTime = format.MaxLabelTime
