package fdbkv

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// FoundationDB has tools of its own for backups: they copy a range of keys and the log of its
// changes, so that what they restore is one state of the whole store, whatever wrote meanwhile
// (https://apple.github.io/foundationdb/backups.html). This file says how to call them for one store.

// BackupCommands returns the shell commands that back the store up to a folder, which all machines of
// the cluster can reach. The first must keep running, and the second ends when the backup is whole.
func (l Location) BackupCommands(folder string) []string {
	return []string{
		"backup_agent -C " + quote(l.ClusterFile),
		fmt.Sprintf("fdbbackup start -C %s -t %s -k %s -d %s -w", quote(l.ClusterFile), l.Prefix, quote(l.keyRange()), quote(folderURL(folder))),
	}
}

// RestoreCommands returns the shell commands that restore the newest backup in a folder into a cluster that
// has nothing under the store's prefix. If the folder cannot be read here, or has no backup, its name ends
// with "backup-…".
func (l Location) RestoreCommands(folder string) []string {
	newest := filepath.Join(folder, "backup-…")
	if all, err := filepath.Glob(filepath.Join(escapeGlob(folder), "backup-*")); err == nil && len(all) > 0 {
		newest = slices.Max(all) // its name is the time
	}
	return []string{
		"backup_agent -C " + quote(l.ClusterFile),
		fmt.Sprintf("fdbrestore start --dest-cluster-file %s -t %s -k %s -r %s -w", quote(l.ClusterFile), l.Prefix, quote(l.keyRange()), quote(folderURL(newest))),
	}
}

// ClearCommand returns the shell command that removes the store.
func (l Location) ClearCommand() string {
	return fmt.Sprintf("fdbcli -C %s --exec %s", quote(l.ClusterFile), quote("writemode on; clearrange "+l.keyRange()))
}

// keyRange returns the first key of the store and the first after it, as FoundationDB's tools read
// them: the layout is documented at Store.
func (l Location) keyRange() string {
	return fmt.Sprintf(`\x02%[1]s\x00 \x02%[1]s\x02`, l.Prefix)
}

func folderURL(folder string) string { return "file://" + folder }

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// quote returns a word for a shell.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:@%+=,…", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
