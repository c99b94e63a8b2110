// Package constellation answers the methods of Constellation (at-microcosm/microcosm-rs,
// constellation/src/server and lexicons/blue.microcosm/links), with its names, parameters and
// JSON, so that a client changes its host and nothing else. docs/asking.md (Constellation) lists
// where the answers differ, and why.
package constellation
