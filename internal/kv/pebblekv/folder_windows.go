package pebblekv

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/windows"
)

// held is the error of Lock while another process has the store.
const held = windows.ERROR_SHARING_VIOLATION

// disk is the machine's file system. Pebble opens the lock file without sharing it, so nobody else opens or deletes it.
type disk struct{ vfs.FS }
