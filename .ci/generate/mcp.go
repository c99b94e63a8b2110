package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"skein.blue/query/xrpc"
)

// viewer is what descriptions say of $viewer, which needs a token of an account.
const viewer = " $viewer stands for the DID of the account in the service auth token."

// tools returns the methods of skein that answer once, as tools of the Model Context Protocol
// (https://modelcontextprotocol.io/specification/2025-11-25/server/tools).
func tools(all []file) (string, error) {
	type tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema schema          `json:"inputSchema"`
		Annotations map[string]bool `json:"annotations"`
	}
	var offered []tool
	for i := range all {
		l := &all[i]
		main := l.method()
		if main == nil || !strings.HasPrefix(l.ID, "blue.skein.graph.") {
			continue
		}
		in := schema{Type: "object"}
		if p := main.Parameters; p != nil {
			in = schemaOf(&xrpc.Def{Type: "object", Properties: p.Properties, Required: p.Required}, l.ID)
		}
		offered = append(offered, tool{l.name(), main.Description, in, map[string]bool{"readOnlyHint": true}})
	}
	b, err := json.MarshalIndent(offered, "", " ")
	return strings.ReplaceAll(string(b), viewer, "") + "\n", err
}

// linked matches a link to another place of the documents.
var linked = regexp.MustCompile(`\[([^\]]+)\]\([^)h][^)]*\)`)

// expressions returns the part of docs/asking.md about expressions and answers, without links to what it does not have.
func expressions(asking string) string {
	text := []string{"# Expressions and answers of skein\n"}
	for _, section := range strings.Split(asking, "\n## ")[1:] {
		if title, _, _ := strings.Cut(section, "\n"); slices.Contains([]string{"Sets", "Names", "Windows", "Methods", "Rankings", "Answers", "Completeness", "Limits"}, title) {
			text = append(text, section)
		}
	}
	return linked.ReplaceAllString(strings.Join(text, "\n## "), "$1") + "\n"
}
