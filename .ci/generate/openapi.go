package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// An OpenAPI 3.1 description (https://spec.openapis.org/oas/v3.1.0) has what the lexicons have, for tools that read that.

type object = map[string]any

// openAPI returns the description of all methods.
func openAPI(all []file) (string, error) {
	text := schema{Type: "string"}
	paths, schemas := object{}, map[string]schema{"error": {Type: "object", Required: []string{"error", "message"}, Properties: map[string]schema{"error": text, "message": text}}}
	for i := range all {
		l := &all[i].Lexicon
		for name, d := range l.Defs {
			if name != "main" {
				schemas[l.ID+"."+name] = schemaOf(&d, l.ID)
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
				one := object{"name": name, "in": "query", "required": slices.Contains(p.Required, name), "schema": schemaOf(&d, l.ID)}
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
		responses := object{
			"200":     object{"description": "The answer.", "content": object{content: object{"schema": schemaOf(&answer.Schema, l.ID)}}},
			"default": failure("An error: " + strings.Join(append(names, "InvalidRequest", "Busy", "StoreDamaged", "StoreUnavailable", "InternalServerError"), ", ") + "."),
		}
		get := object{"operationId": l.ID, "summary": main.Description, "parameters": parameters, "responses": responses}
		calls := object{"get": get}
		if main.Input != nil {
			calls = object{"post": object{
				"operationId": l.ID, "summary": main.Description, "responses": refused(responses, xrpc.InputMediaType),
				"requestBody": object{"required": true, "content": object{xrpc.InputMediaType: object{"schema": schemaOf(&main.Input.Schema, l.ID)}}},
			}}
		}
		if slices.Contains(forms, l.ID) {
			calls["post"] = post(get, l, responses)
		}
		paths["/xrpc/"+l.ID] = calls
	}
	b, err := json.MarshalIndent(object{
		"openapi": "3.1.0", "info": object{"title": "skein", "version": "1", "description": "Set queries over follows, likes and other links on the AT Protocol network. " +
			"app.bsky.* and blue.microcosm.links.* are described as far as this server answers them. Constellation's older methods, /links*, are served as well."},
		"paths": paths, "components": object{"schemas": schemas},
	}, "", " ")
	return string(b) + "\n", err
}

// post describes how to call a method with a form, for expressions that are too long for a URL.
func post(get object, l *xrpc.Lexicon, responses object) object {
	p := l.Defs["main"].Parameters
	form := schemaOf(&xrpc.Def{Type: "object", Properties: p.Properties, Required: p.Required}, l.ID)
	for name, s := range form.Properties {
		if s.MaxLength != nil && *s.MaxLength == language.MaxExpr {
			s.MaxLength = new(language.MaxForm)
			form.Properties[name] = s
		}
		if of := s.Items; of != nil && of.MaxLength != nil && *of.MaxLength == language.MaxExpr {
			of.MaxLength = new(language.MaxForm)
		}
	}
	return object{
		"operationId": l.ID + ".form",
		"summary":     fmt.Sprintf("%s POST takes expressions of up to %d bytes (GET: %d).", get["summary"], language.MaxForm, language.MaxExpr),
		"requestBody": object{"required": true, "content": object{xrpc.FormMediaType: object{"schema": form}}},
		"responses":   refused(responses, xrpc.FormMediaType),
	}
}

// refused returns the responses of a call that has a body.
func refused(responses object, mediaType string) object {
	responses = maps.Clone(responses)
	responses["413"] = failure(fmt.Sprintf("PayloadTooLarge: the body has more than %d bytes.", language.MaxForm))
	responses["415"] = failure("UnsupportedMediaType: the body is not " + mediaType + ".")
	return responses
}

// failure describes an answer that is an error.
func failure(says string) object {
	return object{"description": says, "content": object{"application/json": object{"schema": schema{Ref: "#/components/schemas/error"}}}}
}

// schema is a JSON schema.
type schema struct {
	Ref         string            `json:"$ref,omitempty"`
	AnyOf       []schema          `json:"anyOf,omitempty"`
	Type        string            `json:"type,omitempty"`
	Description string            `json:"description,omitempty"`
	Properties  map[string]schema `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`
	Items       *schema           `json:"items,omitempty"`
	Format      string            `json:"format,omitempty"`
	Enum        []string          `json:"enum,omitempty"`
	Examples    []string          `json:"examples,omitempty"`
	Minimum     *int              `json:"minimum,omitempty"`
	Maximum     *int              `json:"maximum,omitempty"`
	MaxLength   *int              `json:"maxLength,omitempty"`
	MaxItems    *int              `json:"maxItems,omitempty"`
	Default     any               `json:"default,omitempty"`
}

// schemaOf converts a definition to a JSON schema. of is the NSID of its lexicon.
func schemaOf(d *xrpc.Def, of string) schema {
	s := schema{Type: d.Type, Description: d.Description, Required: d.Required, Enum: d.Enum, Examples: d.KnownValues, Minimum: d.Minimum, Maximum: d.Maximum, MaxLength: d.MaxLength, Default: d.Default}
	switch d.Type {
	case "ref":
		return refTo(of, d.Ref)
	case "union":
		s.Type = ""
		for _, r := range d.Refs {
			s.AnyOf = append(s.AnyOf, refTo(of, r))
		}
	case "unknown":
		s.Type = "object"
	case "object":
		s.Properties = map[string]schema{}
		for name, p := range d.Properties {
			q := schemaOf(&p, of)
			if slices.Contains(d.Nullable, name) {
				q = schema{AnyOf: []schema{q, {Type: "null"}}}
			}
			s.Properties[name] = q
		}
	case "array":
		s.Items, s.MaxItems, s.MaxLength = new(schemaOf(d.Items, of)), d.MaxLength, nil
	default: // string, integer, boolean
	}
	if d.Format == "datetime" {
		s.Format = "date-time"
	}
	return s
}

func refTo(of, ref string) schema {
	if strings.HasPrefix(ref, "#") {
		ref = of + ref
	}
	return schema{Ref: "#/components/schemas/" + strings.Replace(ref, "#", ".", 1)}
}
