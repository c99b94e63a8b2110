//go:build fdb

package fdbkv

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// clusterLine is what a cluster file holds: description:id@address,…
var clusterLine = regexp.MustCompile(`^[A-Za-z0-9_]+:[A-Za-z0-9]+@\S+$`)

// checkClusterFile says what is wrong with a cluster file: the client library
// would wait for ever.
func checkClusterFile(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the cluster file: %w; name another one with --store fdb:///path/to/fdb.cluster", err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if clusterLine.MatchString(line) {
			return nil
		}
		return fmt.Errorf("the cluster file %s holds %q, and should hold description:id@address:port,…", path, line)
	}
	return fmt.Errorf("the cluster file %s is empty", path)
}
