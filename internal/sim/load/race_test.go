//go:build race

package load

// raceDetector reports whether the race detector is on, which makes these tests
// take minutes.
const raceDetector = true
