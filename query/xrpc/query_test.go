package xrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
)

var method = Method{NSID: "com.example.method", Takes: []string{"set", "limit", "member", "count"}, Many: []string{"member"}, Form: true}

// says checks that an error is the client's, and says something.
func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != http.StatusBadRequest || e.Name != "InvalidRequest" || !strings.Contains(e.Message, want) || len(e.Message) > 600 {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// Parameters that are unknown, misspelt or repeated are errors, in the address and in a form.
func TestParse(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct{ raw, form, says string }{
		{"set=a", "", ""},
		{"", "", ""},
		{"set=a&limit=5&count=true", "", ""},
		{"member=a&member=b&member=a", "", ""},
		{"set=", "", ""},
		{"set=a&set=a", "", "parameter set occurs 2 times; it may occur once"},
		{"set=a&set=b&set=c", "", "occurs 3 times"},
		{"sett=a", "", `unknown parameter "sett"; did you mean set?`},
		{"SET=a", "", "did you mean set?"},
		{"members=a", "", "did you mean member?"},
		{"cursor=a", "", `unknown parameter "cursor"; com.example.method takes set, limit, member, count`},
		{long + "=a", "", "takes set, limit"},
		{"=a", "", "unknown parameter"},
		{"%FF=a", "", `unknown parameter "\xff"`},
		{"%00=a", "", `unknown parameter "\x00"`},
		{"set=%zz", "", `the query string cannot be read`},
		{"set=a;limit=5", "", `the query string cannot be read`},
		{"set=%", "", `the query string cannot be read`},
		{"", "set=a", ""},
		{"limit=5", "set=a", ""},
		{"member=a", "member=b", ""},
		{"set=a", "set=a", "parameter set occurs 2 times"},
		{"", "set=a&set=b", "parameter set occurs 2 times"},
		{"", "set=%zz", "the form cannot be read"},
		{"", "foo=a", `unknown parameter "foo"`},
		{"%zz", "%zz", "the query string cannot be read"},
	} {
		for _, post := range []bool{false, true} {
			var form *string
			if post {
				form = &c.form
			} else if c.form != "" {
				continue
			}
			q, err := Parse(c.raw, form, &method)
			if c.says != "" {
				says(t, c.raw+" "+c.form, err, c.says)
				continue
			}
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			want, _ := url.ParseQuery(c.raw + "&" + c.form)
			if fmt.Sprint(q.Values) != fmt.Sprint(want) || q.NSID != method.NSID {
				t.Errorf("%+v: %v, want %v", c, q.Values, want)
			}
			if most := map[bool]int{false: language.MaxExpr, true: language.MaxForm}[post]; q.MaxExpr != most {
				t.Errorf("%+v: expressions of %d bytes, want %d", c, q.MaxExpr, most)
			}
		}
	}
	for raw, want := range map[string]string{"cursor=": "", "cursor": "", "cursor=&limit=1": "limit=1", "cursor=x": "cursor=x"} {
		for _, form := range []*string{nil, new("")} {
			q, err := Parse(raw, form, &Method{NSID: "com.example.pages", Takes: []string{"cursor", "limit"}})
			if err != nil || q.Values.Encode() != want {
				t.Errorf("%s: %v, %v, want %q", raw, q, err, want)
			}
		}
	}
	_, err := Parse("x=1", nil, &Method{NSID: "com.example.none"})
	says(t, "a method without parameters", err, "com.example.none takes no parameters")
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"set=a&limit=1", "%zz", "a=b;c", "set=a&set=b", "=", "&&&", "%C3%28=1"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, raw, form string) {
		for _, post := range []*string{nil, &form} {
			q, err := Parse(raw, post, &method)
			if err != nil {
				says(t, raw, err, "")
				continue
			}
			for name, v := range q.Values {
				if !slices.Contains(method.Takes, name) || len(v) != 1 && name != "member" {
					t.Errorf("%q %q: %q", raw, form, q.Values)
				}
			}
		}
	})
}

func query(p url.Values) *Query {
	return &Query{Values: p, Words: words, MaxExpr: language.MaxExpr, Resolve: func([]language.Literal, func(int) string) error { return nil }}
}

// A number is taken exactly from its lowest to its highest value.
func TestIntegers(t *testing.T) {
	for n := range 8 {
		q := query(url.Values{"n": {fmt.Sprint(n)}})
		got, err := q.Integer("n", 2, 5, 7), q.Err()
		if n >= 2 && n <= 5 && (err != nil || got != n) {
			t.Errorf("%d: %d, %v", n, got, err)
		} else if n < 2 || n > 5 {
			says(t, "a number", err, fmt.Sprintf("parameter n is %q; it must be a number from 2 to 5", fmt.Sprint(n)))
		}
	}
	q := query(nil)
	if got := q.Integer("n", 2, 5, 7); got != 7 || q.Err() != nil {
		t.Errorf("no number: %d, %v", got, q.Err())
	}
	for _, bad := range []string{"", " ", "5 ", " 5", "5.0", "1e2", "0x5", "ten", "5,", "5_0", "٥", "５", "--5", "9223372036854775808", strings.Repeat("9", 10_000), "5\x00", "true"} {
		q := query(url.Values{"n": {bad}, "m": {"no"}})
		q.Integer("n", 0, 1<<62, 7)
		q.Boolean("m")
		says(t, "a number", q.Err(), "it must be a number from 0")
		says(t, "a view", q.View(t.Context(), nil), "parameter n is ")
	}
}

// A list has its lowest and highest number of values, all of its type, and an error says which is
// wrong.
func TestLists(t *testing.T) {
	const did, uri = "did:web:a.example.com", "at://did:web:a.example.com/app.bsky.feed.post/x"
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("did:web:n%d.example.com", i))
		}
		return all
	}
	for n := range 7 {
		list, err := query(url.Values{"m": many(n)}).List("m", 5, kinds.DID)
		if ok := n >= 1 && n <= 5; (err == nil) != ok || ok && len(list) != n {
			t.Errorf("%d values: %d, %v", n, len(list), err)
		}
		for i, l := range list {
			if l.S != many(n)[i] || l.Is != dict.DID {
				t.Errorf("value %d: %+v", i, l)
			}
		}
	}
	for _, c := range []struct {
		values []string
		form   kinds.Form
		says   string
	}{
		{nil, kinds.DID, "parameter \"m\" is missing"},
		{many(6), kinds.DID, "parameter m occurs 6 times; at most 5 are allowed"},
		{[]string{did, uri}, kinds.DID, "(number 2) is not an account"},
		{[]string{uri, did}, kinds.ATURI, `m "did:web:a.example.com" (number 2) is not an AT URI`},
		{[]string{""}, kinds.DID, `m "" (number 1) is not an account`},
		{[]string{"a.example.com"}, kinds.DID, "write a handle as @a.example.com"},
		{[]string{"https://example.com"}, kinds.ATURI, "of web addresses, skein understands only links"},
		{[]string{did, "did:plc:short"}, kinds.DID, "(number 2): a did:plc has 24 characters"},
		{[]string{"at://" + did + "/space/com.example.forum/main"}, kinds.ATURI, "is not an AT URI"},
		{[]string{strings.Repeat("x", 9000)}, kinds.DID, "is not an account"},
		{[]string{did + " x"}, kinds.DID, "is not an account"},
		{[]string{did + ")"}, kinds.DID, "is not an account"},
		{[]string{`"` + did}, kinds.DID, "is not a string in double quotes as in JSON"},
		{[]string{`"` + did + `"x`}, kinds.DID, "is not a string in double quotes as in JSON"},
		{[]string{`"cats`}, kinds.Text, "is not a string in double quotes as in JSON"},
		{[]string{`"\q"`}, kinds.Text, "is not a string in double quotes as in JSON"},
		{[]string{`"` + "\xff" + `"`}, kinds.Text, "is not a string in double quotes as in JSON"},
		{[]string{`"half \ud83d"`}, kinds.Text, "is not a string in double quotes as in JSON"},
		{[]string{`"@a.example.com"`}, kinds.DID, "is not a DID; leave out the double quotes"},
		{[]string{`"$viewer"`}, kinds.DID, "is not a DID"},
		{[]string{`"https://bsky.app/profile/a.example.com/post/x"`}, kinds.ATURI, "is not an AT URI; leave out the double quotes"},
		{[]string{""}, kinds.Text, `m "" (number 1) is not a string of 1 to 640 bytes`},
		{[]string{`""`}, kinds.Text, "is not a string of 1 to 640 bytes"},
		{[]string{"cats"}, kinds.Link, "is not a URI of up to 8192 bytes"},
	} {
		_, err := query(url.Values{"m": c.values}).List("m", 5, c.form)
		says(t, "a list", err, c.says)
	}
}

// A value in double quotes is itself, character for character; so is a text without them, unless it begins with one.
func TestQuotedValues(t *testing.T) {
	const did, named, post = "did:web:a.example.com", "at://A.example.com/app.bsky.feed.post/x", "app.bsky.feed.post/x"
	for _, c := range []struct {
		value string
		forms []kinds.Form
		want  language.Literal
	}{
		{`"` + did + `"`, []kinds.Form{kinds.DID}, language.Literal{S: did, Is: dict.DID}},
		{named, []kinds.Form{kinds.ATURI}, language.Literal{S: "at://a.example.com/" + post, Is: dict.URI, Handle: "a.example.com"}},
		{`"` + named + `"`, []kinds.Form{kinds.ATURI}, language.Literal{S: named, Is: dict.URI}},
		{named, []kinds.Form{kinds.ATURI, kinds.Link}, language.Literal{S: named, Is: dict.URI}},
		{"two, (words)", []kinds.Form{kinds.Text}, language.Literal{S: "two, (words)", Is: dict.URI}},
		{` 5" disk `, []kinds.Form{kinds.Text}, language.Literal{S: ` 5" disk `, Is: dict.URI}},
		{`"\"quoted\" \u0061\ud83d\ude00\n"`, []kinds.Form{kinds.Text}, language.Literal{S: "\"quoted\" a😀\n", Is: dict.URI}},
		{`"\uFFFD"`, []kinds.Form{kinds.Text}, language.Literal{S: "\ufffd", Is: dict.URI}},
		{did, []kinds.Form{kinds.Link, kinds.Text}, language.Literal{S: did, Is: dict.URI}},
		{"did:plc:short", []kinds.Form{kinds.Text}, language.Literal{S: "did:plc:short", Is: dict.URI}},
		{"@a.example.com", []kinds.Form{kinds.Text}, language.Literal{S: "@a.example.com", Is: dict.URI}},
	} {
		got, err := query(url.Values{"m": {c.value}}).List("m", 5, c.forms...)
		if err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("%s of %v: %+v, %v, want %+v", c.value, c.forms, got, err, c.want)
		}
	}
}

// An expression is parsed where it is, and its errors name the parameter and the position. So do the
// errors of handles.
func TestExpressions(t *testing.T) {
	for text, want := range map[string]string{
		"": "set: at position 0: expected a set", "follows(": "set: at position 8: follows(…) needs an argument", "frob(x)": `set: at position 0: "frob" is not a set`,
		strings.Repeat(" ", language.MaxExpr+1): "at most 16384 are allowed here, and 1048576 in a form",
	} {
		_, err := query(url.Values{"set": {text}}).Set()
		says(t, text, err, want)
	}
	_, err := query(nil).Set()
	says(t, "no set", err, "parameter \"set\" is missing")
	q := query(url.Values{"set": {"union(follows(@a.example.com), follows(@b.example.com))"}})
	q.Resolve = func(list []language.Literal, where func(int) string) error {
		return Invalid("%sno account has the handle %s", where(1), list[1].Handle)
	}
	_, err = q.Set()
	says(t, "an unknown handle", err, "set: at position 39: no account has the handle b.example.com")
	q.Values = url.Values{"m": {"@a.example.com", "@b.example.com"}}
	_, err = q.List("m", 5, kinds.DID)
	says(t, "an unknown handle", err, "m (number 2): no account has the handle b.example.com")
	form := query(url.Values{"set": {strings.Repeat(" ", language.MaxExpr) + "follows(did:web:a.example.com)"}})
	form.MaxExpr = language.MaxForm
	if e, err := form.Set(); err != nil || e.Type() != dict.DID {
		t.Errorf("a long expression in a form: %v", err)
	}
}

// A method takes the parameters of its lexicon: the required ones first, and arrays repeatedly.
func TestMethodsHaveTheParametersOfTheirLexicons(t *testing.T) {
	files, err := fs.Glob(Lexicons, "*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d lexicons: %v", len(files), err)
	}
	for _, file := range files {
		b, err := fs.ReadFile(Lexicons, file)
		if err != nil {
			t.Fatal(err)
		}
		var l Lexicon
		if err := json.Unmarshal(b, &l); err != nil {
			t.Fatal(err)
		}
		m := Method{NSID: strings.TrimSuffix(file, ".json")}.Described()
		if l.ID != m.NSID {
			t.Errorf("%s has the id %s", file, l.ID)
		}
		p := l.Defs["main"].Parameters
		if p == nil {
			if len(m.Takes)+len(m.Many) != 0 {
				t.Errorf("%s takes %v", m.NSID, m.Takes)
			}
			continue
		}
		if len(m.Takes) != len(p.Properties) || !slices.Equal(m.Takes[:len(p.Required)], p.Required) || !slices.IsSorted(m.Takes[len(p.Required):]) {
			t.Errorf("%s takes %v, of them required %v", m.NSID, m.Takes, p.Required)
		}
		for name, d := range p.Properties {
			if !slices.Contains(m.Takes, name) || slices.Contains(m.Many, name) != (d.Type == "array") {
				t.Errorf("%s: %s is a %s, repeated: %v", m.NSID, name, d.Type, m.Many)
			}
		}
	}
	own := Method{NSID: "/links", Takes: []string{"b", "a"}, Many: []string{"b"}}
	if got := own.Described(); !slices.Equal(got.Takes, own.Takes) || !slices.Equal(got.Many, own.Many) || got.Path() != "/links" {
		t.Errorf("%+v", got)
	}
	if got := (&Method{NSID: "a.b.c"}).Path(); got != "/xrpc/a.b.c" {
		t.Error(got)
	}
}

func TestErrors(t *testing.T) {
	if err := Errorf(http.StatusTeapot, "Teapot", "%d cups", 3); err.Error() != "Teapot: 3 cups" || err.Status != 418 {
		t.Error(err)
	}
}
