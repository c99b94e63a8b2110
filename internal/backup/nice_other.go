//go:build !linux

package backup

// beNice does nothing: only Linux has priorities of threads.
func beNice() {}
