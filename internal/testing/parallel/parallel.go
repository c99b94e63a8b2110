// Package parallel sets how many parallel tests of a package run at a time. By default that is the
// number of processors: too few if the tests mostly wait for timers, processes and connections.
package parallel

import "flag"

// Waiting lets eight parallel tests run at a time, unless -parallel says how many. Call it in TestMain.
func Waiting() {
	if !flag.Parsed() {
		flag.Parse()
	}
	isGiven := false
	flag.Visit(func(f *flag.Flag) { isGiven = isGiven || f.Name == "test.parallel" })
	if isGiven {
		return
	}
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err) // it is not a test's process
	}
}
