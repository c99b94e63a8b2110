package identities

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// Keyspaces of the copy.
const (
	keyAccount  = 'a'
	keyEndpoint = 'e'
	keyCursor   = 'c'
	keyCount    = 'n'
)

// Flags of a row.
const (
	rowTombstone = 1 << iota // the account is deleted
	rowOther                 // the operation has something that a row cannot hold: ask the directory
	rowK256                  // the signing key follows: 33 bytes of secp256k1
	rowP256                  // the signing key follows: 33 bytes of NIST P-256
	rowHost                  // the number of the host's address follows, as a uvarint
	rowAddress               // the host's address follows, with its length as a uvarint

	rowFlags = 1<<iota - 1
)

// keyBytes is the size of a compressed public key on both curves.
const keyBytes = 33

// maxAddress bounds the address of a host, in bytes. A longer one is rowOther.
const maxAddress = 512

// row is the newest operation of an account.
type row struct {
	at      uint64 // Unix milliseconds of the operation
	flags   byte
	key     []byte // set with rowK256 and rowP256
	host    uint32 // set with rowHost
	address string // set with rowAddress
}

// errRow means that the bytes of a row are malformed.
var errRow = errors.New("plc: malformed row")

// appendRow appends the bytes of a row: the flags, the time as a uvarint, and what the flags say.
func appendRow(dst []byte, r *row) []byte {
	dst = binary.AppendUvarint(append(dst, r.flags), r.at)
	dst = append(dst, r.key...)
	switch {
	case r.flags&rowHost != 0:
		dst = binary.AppendUvarint(dst, uint64(r.host))
	case r.flags&rowAddress != 0:
		dst = append(binary.AppendUvarint(dst, uint64(len(r.address))), r.address...)
	}
	return dst
}

// parseRow is the inverse of appendRow. The key points into v.
func parseRow(v []byte) (r row, err error) {
	if len(v) == 0 || v[0] > rowFlags || v[0]&rowK256 != 0 && v[0]&rowP256 != 0 || v[0]&rowHost != 0 && v[0]&rowAddress != 0 {
		return r, errRow
	}
	r.flags = v[0]
	at, n := binary.Uvarint(v[1:])
	if n <= 0 {
		return r, errRow
	}
	r.at, v = at, v[1+n:]
	if r.flags&(rowK256|rowP256) != 0 {
		if len(v) < keyBytes {
			return r, errRow
		}
		r.key, v = v[:keyBytes:keyBytes], v[keyBytes:]
	}
	if r.flags&(rowHost|rowAddress) != 0 {
		number, n := binary.Uvarint(v)
		if n <= 0 {
			return r, errRow
		}
		v = v[n:]
		if r.flags&rowHost != 0 {
			if number > 1<<32-1 {
				return r, errRow
			}
			r.host = uint32(number)
		} else {
			if number > maxAddress || number > uint64(len(v)) {
				return r, errRow
			}
			r.address, v = string(v[:number]), v[number:]
		}
	}
	if len(v) != 0 {
		return r, errRow
	}
	return r, nil
}

// identity returns what the account's document would say. address is the address of its host.
func (r *row) identity(did syntax.DID, address string) (*identity.Identity, error) {
	i := &identity.Identity{DID: did, Handle: syntax.HandleInvalid, Keys: map[string]identity.VerificationMethod{}, Services: map[string]identity.ServiceEndpoint{}}
	if address != "" {
		i.Services["atproto_pds"] = identity.ServiceEndpoint{Type: "AtprotoPersonalDataServer", URL: address}
	}
	var key atcrypto.PublicKey
	var err error
	switch {
	case r.flags&rowK256 != 0:
		key, err = atcrypto.ParsePublicBytesK256(r.key)
	case r.flags&rowP256 != 0:
		key, err = atcrypto.ParsePublicBytesP256(r.key)
	}
	if err != nil {
		return nil, fmt.Errorf("plc: the key of %s: %w", did, err)
	}
	if key != nil {
		i.Keys["atproto"] = identity.VerificationMethod{Type: "Multikey", PublicKeyMultibase: key.Multibase()}
	}
	return i, nil
}

// alphabet is the base32 of did:plc.
var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

const didPrefix = "did:plc:"

// appendAccountKey appends the key of an account, and reports whether did is a did:plc.
func appendAccountKey(dst []byte, did string) (key []byte, ok bool) {
	text, ok := strings.CutPrefix(did, didPrefix)
	if !ok || len(text) != 24 {
		return dst, false
	}
	key, err := alphabet.AppendDecode(append(dst, keyAccount), []byte(text))
	if err != nil { // 24 characters are exactly 15 bytes
		return dst, false
	}
	return key, true
}

func appendEndpointKey(dst []byte, number uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, keyEndpoint), number)
}
