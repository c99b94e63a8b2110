//go:build race

package load

// raceDetector says that the race detector is on, with which these tests take
// minutes.
const raceDetector = true
