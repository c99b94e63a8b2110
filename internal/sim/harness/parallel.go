// Package harness is what the tests stand on: an S3 server (bucket.go), faults (faults.go, disk.go, clock.go, crashmem.go),
// attacks of two sizes (abuse.go), and golden files of encodings (golden.go, codec.go). It does not know the index.
package harness

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
