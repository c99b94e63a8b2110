package golden

import (
	"bytes"
	"testing"
)

// A Codec reads values of one form and writes what it read again.
type Codec struct {
	Name  string
	Again func(v []byte) ([]byte, error) // an error refuses v
	Valid [][]byte                       // values that a program wrote

	// Exact says that what is read is the only form of it: whatever is not refused is
	// written again byte for byte.
	Exact bool
	// Cut says that a value that is cut is refused, or is the form of what is left.
	Cut bool
}

// Check reads v. It must be refused, or be read as something that has a form, which is
// read as the same: that form is returned.
func (c *Codec) Check(t *testing.T, v []byte) (again []byte, ok bool) {
	t.Helper()
	again, err := c.Again(v)
	if err != nil {
		return nil, false
	}
	switch third, err := c.Again(again); {
	case err != nil:
		t.Errorf("%s: %x is read, and written %x, which is not: %v", c.Name, v, again, err)
	case !bytes.Equal(third, again):
		t.Errorf("%s: %x is written %x and that %x", c.Name, v, again, third)
	case c.Exact && !bytes.Equal(again, v):
		t.Errorf("%s: %x is read as if it was %x", c.Name, v, again)
	}
	return again, true
}
