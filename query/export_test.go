package query

// SetMembersAtOnce sets how many members ServeMembers reads at a time, until the returned function is
// called.
func SetMembersAtOnce(n int) (restore func()) {
	was := membersAtOnce
	membersAtOnce = n
	return func() { membersAtOnce = was }
}
