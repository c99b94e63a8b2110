package format

// testFolder is a Folder that drops the size of the folded value.
type testFolder struct{ f Folder }

func newFolder() *testFolder { return new(testFolder) }

// Fold folds as the store's Merger does.
func (t *testFolder) Fold(dst, key []byte, values [][]byte, base bool) ([]byte, error) {
	out, _, err := t.f.Fold(dst, key, values, base)
	return out, err
}
