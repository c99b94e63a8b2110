package cbor

// CARHeader parses the header of a CAR, without its length
// (https://ipld.io/specs/transport/car/carv1/#header). root is its first root, empty if it has
// none; ok is false if header is not the header of a CAR of version 1.
func CARHeader(header []byte) (root []byte, ok bool) {
	c := Cursor{B: header}
	version := uint64(0)
	for range c.Count(Map) {
		switch string(c.Text()) {
		case "version":
			version = c.Uint()
		case "roots":
			for i := range c.Count(Array) {
				if cid := c.Link(); i == 0 {
					root = cid
				}
			}
		default:
			c.Skip()
		}
	}
	if c.Bad || version != 1 {
		return nil, false
	}
	return root, true
}
