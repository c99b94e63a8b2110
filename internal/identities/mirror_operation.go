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
func parseLine(line []byte) (key []byte, r row, nullified bool, err error) {
	var e exported
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, r, false, fmt.Errorf("%w: %w", errLine, err)
	}
	key, ok := accountKey(e.DID)
	ms := e.CreatedAt.UnixMilli()
	if !ok || ms <= 0 {
		return nil, r, false, fmt.Errorf("%w: did %.100q, createdAt %v", errLine, e.DID, e.CreatedAt)
	}
	var o operation
	if json.Unmarshal(e.Operation, &o) == nil {
		r = o.row()
	} else {
		r.kind = rowOther
	}
	r.at = uint64(ms)
	return key, r, e.Nullified, nil
}

// row returns what a row has of an operation.
func (o *operation) row() row {
	var signing, address string
	switch o.Type {
	case "plc_tombstone":
		return row{kind: rowTombstone}
	case "create":
		signing, address = o.SigningKey, withScheme(o.Service)
	case "plc_operation":
		signing = o.VerificationMethods["atproto"]
		if s, ok := o.Services["atproto_pds"]; ok {
			if address = s.Endpoint; s.Type != "AtprotoPersonalDataServer" {
				return row{kind: rowOther}
			}
		}
	default:
		return row{kind: rowOther}
	}
	if u, err := url.Parse(address); len(address) > maxAddress || address != "" && (err != nil || u.Host == "") {
		return row{kind: rowOther}
	}
	if signing == "" {
		return row{kind: rowNoKey, address: address}
	}
	switch key, _ := atcrypto.ParsePublicDIDKey(signing); key := key.(type) {
	case *atcrypto.PublicKeyK256:
		return row{kind: rowK256, key: key.Bytes(), address: address}
	case *atcrypto.PublicKeyP256:
		return row{kind: rowP256, key: key.Bytes(), address: address}
	}
	return row{kind: rowOther}
}

// withScheme completes an address as the directory does for a create.
func withScheme(address string) string {
	if address == "" || strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		return address
	}
	return "https://" + address
}
