package query

import "strings"

// SetMembersAtOnce sets how many members ServeMembers reads at a time, until the returned function is
// called.
func SetMembersAtOnce(n int) (restore func()) {
	was := membersAtOnce
	membersAtOnce = n
	return func() { membersAtOnce = was }
}

// MethodNames returns the names of the methods that a Server answers, without those of older paths.
func MethodNames() (names []string) {
	for _, m := range new(Server).methods() {
		if !strings.HasPrefix(m.NSID, "/") {
			names = append(names, m.NSID)
		}
	}
	return names
}
