package labels

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
)

// This file decides which labels count, and converts them.

// verify returns a label as the store keeps it, nil if it is dropped. Its error is errKey.
func (l *labeler) verify(in *rawLabel, state *graph.Labeler) (*batch.Label, error) {
	out, why := stored(in)
	if why != "" {
		l.drop(why, "subject", in.URI, "value", in.Val, "source", in.SourceDID)
		return nil, nil
	}
	if state.DID == "" && slices.Contains(l.c.o.Labelers, in.SourceDID) { // another one, which is read as such
		l.drop("source", "source", in.SourceDID, "expected", "one that is not in --labelers")
		return nil, nil
	}
	if l.candidate == "" {
		l.candidate = in.SourceDID
	}
	if from := cmp.Or(state.DID, l.candidate); in.SourceDID != from {
		l.drop("source", "source", in.SourceDID, "expected", from)
		return nil, nil
	}
	if in.Sig == nil {
		l.drop("signature", "subject", in.URI, "value", in.Val, "why", "it has none")
		return nil, nil
	}
	if l.keyOf != in.SourceDID || time.Since(l.keyTime) > keyFor {
		return nil, errKey
	}
	err := l.key.HashAndVerify(in.unsigned(), in.Sig)
	// It may have a new key, which the directory may show late, but not later than renewAfter.
	made := time.UnixMicro(out.Time)
	isNewer := made.Add(renewAfter).After(l.keyTime) && time.Until(made) < recent
	if err != nil && (isNewer || time.Since(l.keyTime) > renewAfter) {
		return nil, errKey
	}
	if err != nil {
		l.drop("signature", "subject", in.URI, "value", in.Val, "why", err)
		return nil, nil
	}
	if state.DID == "" {
		l.log.Info("labeler's DID learned from its first label", "did", in.SourceDID)
		state.DID = in.SourceDID
	}
	return out, nil
}

// drop counts and logs a label that is dropped.
func (l *labeler) drop(why string, about ...any) {
	l.c.o.Metrics.Dropped.WithLabelValues(l.name, why).Inc()
	if held, ok := l.c.limiter.Allow(l.name + " " + why); ok {
		l.log.Warn("label dropped", append([]any{"reason", why, "occurrences", held + 1}, about...)...)
	}
}

// stored converts a label to the form in the store. If the label is invalid, why is the reason: version,
// source, value, subject, cid or time.
func stored(in *rawLabel) (out *batch.Label, why string) {
	subject := []byte(in.URI)
	_, badCID := syntax.ParseCID(in.CID)
	made, isTime := microseconds(in.CreatedAt)
	expires, isExpiry := int64(0), true
	if in.ExpiresAt != "" && !in.Negated {
		expires, isExpiry = microseconds(in.ExpiresAt)
	}
	switch {
	case in.Version != labelVersion:
		return nil, "version"
	case !kinds.DID.Valid([]byte(in.SourceDID)):
		return nil, "source"
	case !kinds.ValidLabel(in.Val):
		return nil, "value"
	case !kinds.DID.Valid(subject) && (!strings.HasPrefix(in.URI, "at://did:") || !kinds.ATURI.Valid(subject)):
		return nil, "subject"
	case in.CID != "" && (badCID != nil || len(in.CID) > 255):
		return nil, "cid"
	case !isTime || !isExpiry:
		return nil, "time"
	}
	out = &batch.Label{Labeler: in.SourceDID, Subject: in.URI, Value: in.Val}
	out.CID, out.Negated, out.Time, out.Expires = in.CID, in.Negated, made, expires
	return out, ""
}

// microseconds parses a time, and clamps it to the range from 1970 to batch.MaxLabelTime. It is never 0, which stands for none.
func microseconds(s string) (int64, bool) {
	t, err := syntax.ParseDatetimeLenient(s)
	if err != nil {
		return 0, false
	}
	return min(max(t.Time().UnixMicro(), 1), batch.MaxLabelTime), true
}
