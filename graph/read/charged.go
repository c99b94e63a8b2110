package read

import "skein.blue/internal/kv"

// charged is a Reader that charges for reads.
type charged struct {
	kv.Reader

	charge func(sought bool, key, value []byte) error
}

// Charged returns r with a charge for what it reads: for each key that is looked up (sought), for each scan (sought, without a key), and for each
// key of a scan. If charge returns an error, the read ends with it.
func Charged(r kv.Reader, charge func(sought bool, key, value []byte) error) kv.Reader {
	return &charged{r, charge}
}

// Unwrap returns the Reader without charges (kv.Ahead): what is begun is paid for when it is read.
func (r *charged) Unwrap() kv.Reader { return r.Reader }

// Get implements kv.Reader.
func (r *charged) Get(key []byte) (value []byte, ok bool, err error) {
	value, ok, err = r.Reader.Get(key)
	if err == nil {
		err = r.charge(true, key, value)
	}
	return value, ok, err
}

// MultiGet implements kv.Reader.
func (r *charged) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	return r.Reader.MultiGet(keys, func(i int, value []byte, ok bool) error {
		if err := r.charge(true, keys[i], value); err != nil {
			return err
		}
		return each(i, value, ok)
	})
}

// Scan implements kv.Reader.
func (r *charged) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if err := r.charge(true, nil, nil); err != nil {
		return err
	}
	return r.Reader.Scan(lo, hi, reverse, func(key, value []byte) (bool, error) {
		if err := r.charge(false, key, value); err != nil {
			return false, err
		}
		return each(key, value)
	})
}
