package query

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"skein.blue/query/language"
	"skein.blue/query/lexicons"
	"skein.blue/query/xrpc"
)

// Lexicons describe the methods. The server serves them as they are, and as one OpenAPI 3.1
// description (https://spec.openapis.org/oas/v3.1.0), for tools that read that.

type object = map[string]any

// openAPI returns the description of all methods that have a lexicon.
func openAPI(version string, methods []xrpc.Method) ([]byte, error) {
	all, err := lexicons.Read(lexicons.Files, ".")
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
		main, isMethod := l.Defs["main"]
		if !isMethod {
			continue
		}
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
				"default": object{"description": "An error: " + strings.Join(append(names, "InvalidRequest", "Busy", "StoreDamaged", "StoreUnavailable", "InternalServerError"), ", ") + ".", "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/error"}}}},
			},
		}
		calls := object{"get": get}
		if i := slices.IndexFunc(methods, func(m xrpc.Method) bool { return m.NSID == l.ID }); i >= 0 && methods[i].Form {
			calls["post"] = post(get, l)
		}
		paths["/xrpc/"+l.ID] = calls
	}
	b, err := json.MarshalIndent(object{
		"openapi": "3.1.0", "info": object{"title": "skein", "version": version, "description": "Set queries over follows, likes and other links on the AT Protocol network. " +
			"app.bsky.* and blue.microcosm.links.* are described as far as this server answers them. Constellation's older methods, /links*, are served as well."},
		"paths": paths, "components": object{"schemas": schemas},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("query: making the OpenAPI description: %w", err)
	}
	return append(b, '\n'), nil
}

// post describes how to call a method with a form, for expressions that are too long for a URL.
func post(get object, l *lexicons.File) object {
	p := l.Defs["main"].Parameters
	form := schema(&lexicons.Def{Type: "object", Properties: p.Properties, Required: p.Required}, l.ID)
	for _, property := range form["properties"].(object) { //nolint:errcheck // schema made it
		if s := property.(object); s["maxLength"] == language.MaxExpr { //nolint:errcheck // likewise
			s["maxLength"] = language.MaxForm
		}
	}
	call := maps.Clone(get)
	delete(call, "parameters")
	call["operationId"] = l.ID + ".form"
	call["summary"] = fmt.Sprintf("%s POST takes expressions of up to %d bytes (GET: %d).", get["summary"], language.MaxForm, language.MaxExpr)
	call["requestBody"] = object{"required": true, "content": object{xrpc.FormMediaType: object{"schema": form}}}
	responses := maps.Clone(get["responses"].(object)) //nolint:errcheck // openAPI made it
	for status, says := range map[string]string{"413": fmt.Sprintf("PayloadTooLarge: the body has more than %d bytes.", language.MaxForm), "415": "UnsupportedMediaType: the body is not " + xrpc.FormMediaType + "."} {
		responses[status] = object{"description": says, "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/error"}}}}
	}
	call["responses"] = responses
	return call
}

// schema converts a definition to a JSON schema. of is the NSID of its lexicon.
func schema(d *lexicons.Def, of string) object {
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
			q := schema(&p, of)
			if slices.Contains(d.Nullable, name) {
				q = object{"anyOf": []object{q, {"type": "null"}}}
			}
			properties[name] = q
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

// description serves a description made from the lexicons.
func (s *responder) description(w http.ResponseWriter, r *http.Request, b []byte) {
	if s.isRead(w, r) {
		s.write(w, r, http.StatusOK, json.RawMessage(b))
	}
}

// serveDescriptions serves the lexicons, below /lexicons/, and /openapi.json.
func (s *Server) serveDescriptions() error {
	api, err := openAPI(s.o.Version, methodsOf(&s.o, &s.index))
	if err != nil {
		return err
	}
	s.mux.HandleFunc("/openapi.json", func(w http.ResponseWriter, r *http.Request) { s.description(w, r, api) })
	s.mux.HandleFunc("/lexicons/{$}", func(w http.ResponseWriter, r *http.Request) {
		entries, err := lexicons.Files.ReadDir(".")
		if err != nil {
			s.fail(w, r, "unknown", xrpc.Errorf(http.StatusInternalServerError, "InternalServerError", "%v", err))
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
		b, err := lexicons.Files.ReadFile(r.PathValue("file"))
		if err != nil {
			s.fail(w, r, "unknown", xrpc.Errorf(http.StatusNotFound, "NotFound", "unknown lexicon %q; /openapi.json lists the methods", language.Brief(r.PathValue("file"))))
			return
		}
		s.description(w, r, b)
	})
	return nil
}
