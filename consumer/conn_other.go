//go:build !linux

package consumer

func wakeFrom(uintptr, int) {}
