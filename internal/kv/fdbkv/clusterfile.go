//go:build fdb

package fdbkv

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// clusterLine matches the line of a cluster file: description:id@address,…
var clusterLine = regexp.MustCompile(`^[A-Za-z0-9_]+:[A-Za-z0-9]+@\S+$`)

// checkClusterFile checks the syntax of a cluster file: on a malformed one, the
// client library would wait forever.
func checkClusterFile(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the cluster file: %w; choose another with --store fdb:///path/to/fdb.cluster", err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if clusterLine.MatchString(line) {
			return nil
		}
		return fmt.Errorf("the cluster file %s contains %q; want description:id@address:port,…", path, line)
	}
	return fmt.Errorf("the cluster file %s is empty", path)
}
