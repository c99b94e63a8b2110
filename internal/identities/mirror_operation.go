package identities

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
)

// exported is one line of the directory's export.
type exported struct {
	DID       string          `json:"did"`
	Operation json.RawMessage `json:"operation"`
	Nullified bool            `json:"nullified"`
	CreatedAt time.Time       `json:"createdAt"`
}

// operation is the part of an operation that skein needs. A "create" is the form of the directory's
// first months.
type operation struct {
	Type                string            `json:"type"`
	VerificationMethods map[string]string `json:"verificationMethods"`
	Services            map[string]struct {
		Type     string `json:"type"`
		Endpoint string `json:"endpoint"`
	} `json:"services"`
	SigningKey string `json:"signingKey"` // create
	Service    string `json:"service"`    // create
}

// errLine means that a line of the export is not one.
var errLine = errors.New("not a line of an export")

// parseLine parses a line of the export. It returns an error only if the line does not say whose
// operation it is and when it came; an operation that a row cannot hold becomes rowOther.
func parseLine(line []byte) (key []byte, r row, address string, nullified bool, err error) {
	var e exported
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, r, "", false, fmt.Errorf("%w: %w", errLine, err)
	}
	key, ok := appendAccountKey(nil, e.DID)
	ms := e.CreatedAt.UnixMilli()
	if !ok || e.CreatedAt.IsZero() || ms <= 0 {
		return nil, r, "", false, fmt.Errorf("%w: did %.100q, createdAt %v", errLine, e.DID, e.CreatedAt)
	}
	r.at = uint64(ms)
	var o operation
	if json.Unmarshal(e.Operation, &o) == nil {
		address = r.fill(&o)
	} else {
		r.flags = rowOther
	}
	return key, r, address, e.Nullified, nil
}

// fill sets the flags and the key by an operation, and returns the address of the host.
func (r *row) fill(o *operation) (address string) {
	signing := o.VerificationMethods["atproto"]
	switch o.Type {
	case "plc_tombstone":
		r.flags = rowTombstone
		return ""
	case "create":
		signing, address = o.SigningKey, withScheme(o.Service)
	case "plc_operation":
		if s, ok := o.Services["atproto_pds"]; ok {
			if address = s.Endpoint; s.Type != "AtprotoPersonalDataServer" {
				r.flags = rowOther
				return ""
			}
		}
	default:
		r.flags = rowOther
		return ""
	}
	if u, err := url.Parse(address); len(address) > maxAddress || address != "" && (err != nil || u.Host == "") {
		r.flags = rowOther
		return ""
	}
	if signing == "" {
		return address
	}
	key, err := atcrypto.ParsePublicDIDKey(signing)
	if err != nil {
		r.flags = rowOther
		return ""
	}
	switch key.(type) {
	case *atcrypto.PublicKeyK256:
		r.flags = rowK256
	case *atcrypto.PublicKeyP256:
		r.flags = rowP256
	default:
		r.flags = rowOther
		return ""
	}
	r.key = key.Bytes()
	return address
}

// withScheme completes an address as the directory does for a create.
func withScheme(address string) string {
	if address == "" || strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		return address
	}
	return "https://" + address
}
