// Command lexicons writes the records that publish the lexicons, as
// https://atproto.com/specs/lexicon#lexicon-publication-and-resolution describes:
//
//	go run ./.ci/lexicons --did did:plc:… DIR
//
// It writes one record com.atproto.lexicon.schema for each lexicon blue.skein.* of package query
// to DIR/NSID.json, checked as indigo checks lexicons, and prints the DNS record that leads
// resolvers to the repo of the records. CONTRIBUTING.md says how to publish them. The lexicons of
// other projects' methods are only checked: their owners publish them.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/atdata"
	indigo "github.com/bluesky-social/indigo/atproto/lexicon"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/query/xrpc"
)

// collection is the collection of lexicon records.
const collection = "com.atproto.lexicon.schema"

// ours is the prefix of this project's NSIDs.
const ours = "blue.skein."

func main() {
	did := flag.String("did", "", "account whose repo will hold the lexicons")
	flag.Parse()
	if err := run(os.Stdout, *did, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "lexicons:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, did string, args []string) error {
	if len(args) != 1 {
		return errors.New("missing the folder for the records: lexicons --did DID DIR")
	}
	if _, err := syntax.ParseDID(did); err != nil {
		return fmt.Errorf("--did %q: expected the DID of the account that publishes the lexicons: %w", did, err)
	}
	records, err := recordsOf(xrpc.Lexicons)
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(r record) bool { return !strings.HasPrefix(r.ID, ours) })
	if err := os.MkdirAll(args[0], 0o755); err != nil { // public
		return fmt.Errorf("creating the folder: %w", err)
	}
	for _, r := range records {
		if err := os.WriteFile(filepath.Join(args[0], r.ID+".json"), r.json, 0o644); err != nil { // public
			return fmt.Errorf("writing a record: %w", err)
		}
	}
	for _, name := range authorities(records) {
		fmt.Fprintf(out, "%s. 3600 IN TXT \"did=%s\"\n", name, did)
	}
	return nil
}

// record is a lexicon as a record. Its key is the ID.
type record struct {
	Type        string          `json:"$type"`
	Lexicon     int             `json:"lexicon"`
	ID          string          `json:"id"`
	Description string          `json:"description,omitempty"`
	Defs        json.RawMessage `json:"defs"`

	nsid syntax.NSID
	json []byte
}

// recordsOf makes the records of the lexicons in a folder, in the order of their files. It checks
// them and their references.
func recordsOf(files fs.FS) (all []record, err error) {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, fmt.Errorf("reading the lexicons: %w", err)
	}
	catalog := indigo.NewBaseCatalog()
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading a lexicon: %w", err)
		}
		r, err := recordOf(b)
		if err == nil && r.ID+".json" != name {
			err = fmt.Errorf("id %q does not match the file name", r.ID)
		}
		if err == nil {
			err = add(catalog, r.json)
		}
		if err != nil {
			return nil, fmt.Errorf("lexicon %s: %w", name, err)
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := resolve(catalog, r); err != nil {
			return nil, fmt.Errorf("lexicon %s: %w", r.ID, err)
		}
	}
	return all, nil
}

// recordOf makes the record of one lexicon.
func recordOf(file []byte) (r record, err error) {
	d := json.NewDecoder(bytes.NewReader(file))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("parsing the file: %w", err)
	}
	if r.Type != "" && r.Type != collection {
		return r, fmt.Errorf("unexpected $type %q", r.Type)
	}
	if r.nsid, err = syntax.ParseNSID(r.ID); err != nil {
		return r, fmt.Errorf("invalid id: %w", err)
	}
	r.Type = collection
	if r.json, err = json.MarshalIndent(r, "", "  "); err != nil {
		return r, fmt.Errorf("encoding the record: %w", err)
	}
	if _, err := atdata.UnmarshalJSON(r.json); err != nil {
		return r, fmt.Errorf("not valid as a record: %w", err)
	}
	r.json = append(r.json, '\n')
	return r, nil
}

// add checks a record as a lexicon, and adds it to a catalog.
func add(c *indigo.BaseCatalog, b []byte) error {
	var s indigo.SchemaFile
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("parsing the lexicon: %w", err)
	}
	if err := c.AddSchemaFile(s); err != nil {
		return fmt.Errorf("invalid lexicon: %w", err)
	}
	return nil
}

// resolve looks up the references of a lexicon.
func resolve(c *indigo.BaseCatalog, r record) error {
	var defs any
	if err := json.Unmarshal(r.Defs, &defs); err != nil {
		return fmt.Errorf("parsing the definitions: %w", err)
	}
	var walk func(v any) error
	check := func(ref any) error {
		s, _ := ref.(string)
		if s != "" && s[0] == '#' {
			s = r.ID + s
		}
		if _, err := c.Resolve(s); err != nil {
			return fmt.Errorf("reference %v: %w", ref, err)
		}
		return nil
	}
	walk = func(v any) (err error) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				err = errors.Join(err, walk(x))
			}
		case map[string]any:
			refs, _ := v["refs"].([]any)
			if ref, ok := v["ref"].(string); ok {
				refs = append(refs, ref)
			}
			for _, ref := range refs {
				err = errors.Join(err, check(ref))
			}
			for _, x := range v {
				err = errors.Join(err, walk(x))
			}
		}
		return err
	}
	return walk(defs)
}

// authorities returns the DNS names that lead to the repo of the records: one for each group of
// NSIDs that differ only in their last part.
func authorities(records []record) (names []string) {
	for _, r := range records {
		if name := "_lexicon." + r.nsid.Authority(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
