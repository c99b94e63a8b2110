//go:build cgo

package app

const cgo = true
