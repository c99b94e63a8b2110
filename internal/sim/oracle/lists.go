package oracle

import "strings"

// A Listing is a record that puts an account on a list of the record's author.
type Listing struct{ Author, Rkey, Member, List string }

// Listings returns the valid ones: those in the repo of the list's own author, if the
// author is active.
func (m *Model) Listings() (all []Listing) {
	for p, member := range m.Records {
		if p.Kind != ListItem || member == "" || m.Hidden[p.DID] {
			continue
		}
		list := m.Records[Path{p.DID, ListItemOf, p.Rkey}]
		if strings.HasPrefix(list+"/", "at://"+p.DID+"/") {
			all = append(all, Listing{p.DID, p.Rkey, member, list})
		}
	}
	return all
}
