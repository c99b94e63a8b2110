package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const samples = `{"phase":"history","edges":1000000,"seconds":10,"done":1000000,"cpu_seconds":5,"disk_bytes":50000000,"arrived_bytes":20000000,"written_bytes":[20000000,0,0,0,0,0,0]}
{"phase":"history","edges":1010000,"seconds":10,"done":0,"cpu_seconds":8,"disk_bytes":50000000,"arrived_bytes":0,"written_bytes":[0,0,0,0,0,0,40000000]}
{"phase":"history","edges":9000000,"seconds":20,"done":8000000,"cpu_seconds":40,"disk_bytes":200000000,"arrived_bytes":160000000,"written_bytes":[160000000,0,0,0,0,0,100000000]}
{"phase":"stream","edges":9100000,"seconds":10,"done":500000,"cpu_seconds":10,"disk_bytes":210000000,"arrived_bytes":15000000,"written_bytes":[0,0,0,0,0,0,0]}
`

func TestDraw(t *testing.T) {
	run, err := Read("before <1>", strings.NewReader(samples))
	if err != nil || len(run.Samples) != 4 {
		t.Fatalf("%d samples: %v", len(run.Samples), err)
	}
	var b bytes.Buffer
	if err := Draw(&b, []Run{run, {Name: "after", Samples: run.Samples[2:]}}); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the drawing is not valid XML: %v", err)
		}
	}
	// A part without records is added to the one before: 60 MB written for 20 MB.
	lines := linesOf([]Run{run})
	if len(lines) != 2 || len(lines[0].parts) != 2 || lines[0].dashed || !lines[1].dashed {
		t.Fatalf("%+v", lines)
	}
	if v := panels[2].of(&lines[0].parts[0]); v != 3 {
		t.Errorf("%v bytes written for each byte, want 3", v)
	}
	if v := panels[0].of(&lines[0].parts[1]); v != 400_000 {
		t.Errorf("%v records per second, want 400,000", v)
	}
	for _, want := range []string{"before &lt;1&gt;: history", "after: stream", "10 M", "stroke-dasharray"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
}

func TestTable(t *testing.T) {
	run, err := Read("x", strings.NewReader(strings.Replace(samples, `"seconds":10`, `"written_keyspaces":{"r":18000000,"?":9000000},"seconds":10`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Table(&b, []Run{run}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| x: history | 9000000 | 9000000 | 225000 | 5.89 |", "| 20.0 | 20.0 | 15.6 | 1.8 | ? 1.0, records 2.0 |\n", "| x: stream | 9100000 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	if err := Draw(io.Discard, nil); !errors.Is(err, ErrEmpty) {
		t.Errorf("without runs: %v", err)
	}
	if _, err := Read("x", strings.NewReader("{}\nno")); err == nil || !strings.Contains(err.Error(), "x: line 2") {
		t.Errorf("with a bad line: %v", err)
	}
}

func TestNiceStep(t *testing.T) {
	for top, want := range map[float64]float64{0: 1, 1: 0.2, 4.2: 1, 17.3: 5, 100: 20, 312_000: 100_000} {
		if got := niceStep(top); got != want {
			t.Errorf("up to %v: a step of %v, want %v", top, got, want)
		}
	}
}
