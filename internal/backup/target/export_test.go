package target

import "time"

// SetQuiet sets how long a web server may send nothing, until the returned function is called.
func SetQuiet(d time.Duration) (restore func()) {
	was := quiet
	quiet = d
	return func() { quiet = was }
}
