// Package say has what is said to people: rounded numbers with units, strangers' text made safe for terminals, and a limit
// on frequent log messages. Do not use its numbers where exact ones matter. It logs and prints nothing itself.
package say

import "fmt"

// Bytes formats a number of bytes in binary units: 1.5 GiB.
func Bytes[T ~int | ~int64 | ~uint64](n T) string {
	return scaled(float64(n), 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB")
}

// Count formats a count: 1.5 M.
func Count[T ~int | ~int64 | ~uint64](n T) string {
	return scaled(float64(n), 1000, "", "k", "M", "G", "T", "P")
}

func scaled(v, step float64, units ...string) string {
	i := 0
	for i < len(units)-1 && v >= step-0.05 {
		v /= step
		i++
	}
	format := "%.1f %s"
	if i == 0 || v >= 99.95 {
		format = "%.0f %s"
	}
	if units[i] == "" {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf(format, v, units[i])
}
