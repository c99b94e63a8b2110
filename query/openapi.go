package query

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"skein.blue/internal/lexicon"
)

// The methods are described by their lexicons, and those are served as they are, and as one
// description in OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0) for the tools that know
// that.

type object = map[string]any

// openAPI makes the description of all methods that have a lexicon.
func openAPI(version string) ([]byte, error) {
	all, err := lexicon.Read(Lexicons, "lexicons")
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	paths, schemas := object{}, object{
		"error": object{"type": "object", "required": []string{"error", "message"}, "properties": object{"error": object{"type": "string"}, "message": object{"type": "string"}}},
	}
	for i := range all {
		l := &all[i]
		for name, d := range l.Defs {
			if name != "main" {
				schemas[l.ID+"."+name] = schema(&d, l.ID)
			}
		}
		main := l.Defs["main"]
		parameters := []object{}
		if p := main.Parameters; p != nil {
			for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
				d := p.Properties[name]
				one := object{"name": name, "in": "query", "required": slices.Contains(p.Required, name), "schema": schema(&d, l.ID)}
				if d.Description != "" {
					one["description"] = d.Description
				}
				if d.Type == "array" {
					one["explode"] = true
				}
				parameters = append(parameters, one)
			}
		}
		content, answer := "application/json", main.Output
		if main.Message != nil {
			content, answer = "text/event-stream", main.Message
		}
		var names []string
		for _, e := range main.Errors {
			names = append(names, e.Name)
		}
		get := object{
			"operationId": l.ID, "summary": main.Description, "parameters": parameters,
			"responses": object{
				"200":     object{"description": "The answer.", "content": object{content: object{"schema": schema(&answer.Schema, l.ID)}}},
				"default": object{"description": "An error: " + strings.Join(append(names, "InvalidRequest", "Busy", "StoreDamaged", "InternalServerError"), ", ") + ".", "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/error"}}}},
			},
		}
		paths["/xrpc/"+l.ID] = object{"get": get}
	}
	b, err := json.MarshalIndent(object{
		"openapi": "3.1.0", "info": object{"title": "skein", "version": version, "description": "Who follows whom and who likes what on the AT Protocol network, as sets. " +
			"Served beside these, as their makers describe them: app.bsky.graph.getRelationships, app.bsky.feed.getFeedSkeleton and describeFeedGenerator, blue.microcosm.links.* and /links*."},
		"paths": paths, "components": object{"schemas": schemas},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("query: making the OpenAPI description: %w", err)
	}
	return append(b, '\n'), nil
}

// schema is a definition as a JSON schema. of is the lexicon that it is in.
func schema(d *lexicon.Def, of string) object {
	s := object{}
	switch d.Type {
	case "ref":
		return object{"$ref": "#/components/schemas/" + refName(of, d.Ref)}
	case "union":
		var any []object
		for _, r := range d.Refs {
			any = append(any, object{"$ref": "#/components/schemas/" + refName(of, r)})
		}
		return object{"anyOf": any}
	case "unknown":
		s["type"] = "object"
	case "object":
		s["type"] = "object"
		properties := object{}
		for name, p := range d.Properties {
			properties[name] = schema(&p, of)
		}
		s["properties"] = properties
		if len(d.Required) > 0 {
			s["required"] = d.Required
		}
	case "array":
		s["type"], s["items"] = "array", schema(d.Items, of)
		if d.MaxLength != nil {
			s["maxItems"] = *d.MaxLength
		}
	default: // string, integer, boolean
		s["type"] = d.Type
		if d.MaxLength != nil {
			s["maxLength"] = *d.MaxLength
		}
	}
	for name, v := range map[string]any{"minimum": d.Minimum, "maximum": d.Maximum} {
		if n, _ := v.(*int); n != nil {
			s[name] = *n
		}
	}
	if d.Description != "" {
		s["description"] = d.Description
	}
	if d.Default != nil {
		s["default"] = d.Default
	}
	if len(d.Enum) > 0 {
		s["enum"] = d.Enum
	}
	if len(d.KnownValues) > 0 {
		s["examples"] = d.KnownValues
	}
	if d.Format == "datetime" {
		s["format"] = "date-time"
	}
	return s
}

func refName(of, ref string) string {
	if name, local := strings.CutPrefix(ref, "#"); local {
		return of + "." + name
	}
	return strings.Replace(ref, "#", ".", 1)
}

// description serves what was made of the lexicons.
func (s *Server) description(w http.ResponseWriter, r *http.Request, b []byte) {
	if s.isRead(w, r) {
		s.write(w, r, http.StatusOK, json.RawMessage(b))
	}
}

// serveDescriptions serves the lexicons, below /lexicons/, and /openapi.json.
func (s *Server) serveDescriptions() error {
	api, err := openAPI(s.o.Version)
	if err != nil {
		return err
	}
	s.mux.HandleFunc("/openapi.json", func(w http.ResponseWriter, r *http.Request) { s.description(w, r, api) })
	s.mux.HandleFunc("/lexicons/{$}", func(w http.ResponseWriter, r *http.Request) {
		entries, err := Lexicons.ReadDir("lexicons")
		if err != nil {
			s.fail(w, r, "unknown", &Error{http.StatusInternalServerError, "InternalServerError", err.Error()})
			return
		}
		list := []string{}
		for _, e := range entries {
			list = append(list, "/lexicons/"+e.Name())
		}
		b, err := json.Marshal(object{"lexicons": list})
		if err == nil {
			s.description(w, r, b)
		}
	})
	s.mux.HandleFunc("/lexicons/{file}", func(w http.ResponseWriter, r *http.Request) {
		b, err := Lexicons.ReadFile("lexicons/" + r.PathValue("file"))
		if err != nil {
			s.fail(w, r, "unknown", &Error{http.StatusNotFound, "NotFound", fmt.Sprintf("there is no lexicon %q here; /openapi.json lists the methods", clip(r.PathValue("file")))})
			return
		}
		s.description(w, r, b)
	})
	return nil
}
