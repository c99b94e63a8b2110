package harness

import (
	"bytes"
	"testing"
)

// A Codec parses values of one form and encodes them again.
type Codec struct {
	Name  string
	Again func(v []byte) ([]byte, error) // an error if v is invalid
	Valid [][]byte                       // values that a program wrote

	// Exact means that each value has only one form: every valid v is encoded again
	// byte for byte.
	Exact bool
	// Cut means that a truncated value is invalid, or the form of what is left.
	Cut bool
}

// Check parses v. Unless v is invalid, its new encoding must parse and encode to
// itself; Check returns that encoding.
func (c *Codec) Check(t *testing.T, v []byte) (again []byte, ok bool) {
	t.Helper()
	again, err := c.Again(v)
	if err != nil {
		return nil, false
	}
	switch third, err := c.Again(again); {
	case err != nil:
		t.Errorf("%s: %x is encoded as %x, which is invalid: %v", c.Name, v, again, err)
	case !bytes.Equal(third, again):
		t.Errorf("%s: %x is encoded as %x, and that as %x", c.Name, v, again, third)
	case c.Exact && !bytes.Equal(again, v):
		t.Errorf("%s: %x is parsed like %x", c.Name, v, again)
	}
	return again, true
}
