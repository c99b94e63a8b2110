// Package chart draws samples of load tests (load.Sample, a line of JSON each) against the number of edges: an SVG
// with four panels, or a Markdown table of their sums.
package chart

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"slices"

	"skein.blue/internal/load"
)

// A Run has the samples of one load test.
type Run struct {
	Name    string
	Samples []load.Sample
}

// Read reads samples.
func Read(name string, r io.Reader) (Run, error) {
	run := Run{Name: name}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		var s load.Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return run, fmt.Errorf("%s: line %d is not a sample of load --samples: %w", name, n, err)
		}
		run.Samples = append(run.Samples, s)
	}
	if err := lines.Err(); err != nil {
		return run, fmt.Errorf("%s: %w", name, err)
	}
	return run, nil
}

// point is one place of a line.
type point struct{ x, y float64 }

// line is what one run did in one phase.
type line struct {
	name   string
	parts  []load.Sample // those of one place added up, ascending by edges
	colour string
	dashed bool
}

// panel is one of the drawings.
type panel struct {
	title string
	of    func(s *load.Sample) float64
}

var panels = []panel{
	{"records or events per second", func(s *load.Sample) float64 { return float64(s.Done) / s.Seconds }},
	{"processor time of the indexer for each, µs", func(s *load.Sample) float64 { return s.CPU / float64(s.Done) * 1e6 }},
	{"bytes written to tables for each byte of the writes", func(s *load.Sample) float64 { return float64(sum(s.Written)) / float64(s.Arrived) }},
	{"bytes on disk an edge, not settled", func(s *load.Sample) float64 { return float64(s.DiskBytes) / float64(s.Edges) }},
}

func sum(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}

// The layout, in SVG's units.
const (
	width, height     = 900, 620 // without the legend
	columns, rowH     = 4, 18    // of the legend
	panelW, panelH    = 370, 220
	left, top         = 60, 50
	columnGap, rowGap = 70, 70
	pointsPerDecade   = 6
	textSize          = 11
)

var colours = []string{"#1f6feb", "#d1480f", "#2a8f3c", "#8250df", "#0a7f8c", "#8a6d00", "#bf3989", "#57606a"}

// ErrEmpty means that there is nothing to draw.
var ErrEmpty = errors.New("no samples with finished records or events")

// Draw writes the drawing of some runs.
func Draw(w io.Writer, runs []Run) error {
	lines := linesOf(runs)
	if len(lines) == 0 {
		return ErrEmpty
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		lo, hi = min(lo, float64(l.parts[0].Edges)), max(hi, float64(l.parts[len(l.parts)-1].Edges))
	}
	first, last := math.Floor(math.Log10(lo)), math.Ceil(math.Log10(hi))
	if first == last {
		last++
	}
	out := bufio.NewWriter(w)
	whole := height + (len(lines)+columns-1)/columns*rowH
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n", width, whole, textSize)
	fmt.Fprintf(out, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, whole)
	for i, p := range panels {
		x0, y0 := left+i%2*(panelW+columnGap), top+i/2*(panelH+rowGap)
		drawPanel(out, p, lines, x0, y0, first, last)
	}
	for i, l := range lines {
		x, y, dash := left+i%columns*210, height+i/columns*rowH, ""
		if l.dashed {
			dash = ` stroke-dasharray="4 3"`
		}
		fmt.Fprintf(out, `<path d="M%d %dh24" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`+"\n",
			x, y-4, l.colour, dash, x+30, y, html.EscapeString(l.name))
	}
	fmt.Fprintln(out, "</svg>")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the drawing: %w", err)
	}
	return nil
}

// linesOf returns a line for each run and phase. Samples of one place on the axis of edges are added up.
func linesOf(runs []Run) (lines []line) {
	for i, r := range runs {
		byPhase := map[string][]load.Sample{}
		var phases []string
		for _, s := range r.Samples {
			if s.Edges <= 0 || s.Seconds <= 0 {
				continue
			}
			all := byPhase[s.Phase]
			if all == nil {
				phases = append(phases, s.Phase)
			}
			if n := len(all); n > 0 && (all[n-1].Done == 0 || place(all[n-1].Edges) == place(s.Edges)) {
				add(&all[n-1], &s)
			} else {
				all = append(all, s)
			}
			byPhase[s.Phase] = all
		}
		for _, phase := range phases {
			parts := slices.DeleteFunc(byPhase[phase], func(s load.Sample) bool { return s.Done == 0 })
			slices.SortStableFunc(parts, func(x, y load.Sample) int { return cmp.Compare(x.Edges, y.Edges) })
			if len(parts) > 0 {
				lines = append(lines, line{r.Name + ": " + phase, parts, colours[i%len(colours)], phase == "stream"})
			}
		}
	}
	return lines
}

// place divides the axis of edges into pointsPerDecade places for each decade.
func place(edges int64) int { return int(math.Log10(float64(edges)) * pointsPerDecade) }

// add adds a later sample to an earlier one.
func add(to, s *load.Sample) {
	to.Edges, to.DiskBytes, to.Peak, to.LagP99, to.Elapsed = s.Edges, s.DiskBytes, s.Peak, s.LagP99, s.Elapsed
	to.Seconds += s.Seconds
	to.Done += s.Done
	to.CPU += s.CPU
	to.OtherCPU += s.OtherCPU
	to.Arrived += s.Arrived
	to.Strings += s.Strings
	for k, n := range s.Keyspaces {
		if to.Keyspaces == nil {
			to.Keyspaces = map[string]int64{}
		}
		to.Keyspaces[k] += n
	}
	written := slices.Clone(s.Written)
	for i := range min(len(written), len(to.Written)) {
		written[i] += to.Written[i]
	}
	to.Written = written
}

func drawPanel(out io.Writer, p panel, lines []line, x0, y0 int, first, last float64) {
	curves := make([][]point, len(lines))
	top := 0.0
	for i, l := range lines {
		for n := range l.parts {
			if v := p.of(&l.parts[n]); !math.IsNaN(v) && !math.IsInf(v, 0) {
				curves[i] = append(curves[i], point{math.Log10(float64(l.parts[n].Edges)), v})
				top = max(top, v)
			}
		}
	}
	step := niceStep(top)
	top = max(math.Ceil(top/step)*step, step)
	at := func(q point) (x, y float64) {
		return float64(x0) + (q.x-first)/(last-first)*panelW, float64(y0) + panelH - q.y/top*panelH
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", x0, y0-12, html.EscapeString(p.title))
	for v := 0.0; v <= top*1.001; v += step {
		_, y := at(point{first, v})
		fmt.Fprintf(out, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%s</text>`+"\n", x0, y, panelW, x0-6, y+4, number(v))
	}
	for d := first; d <= last; d++ {
		x, _ := at(point{d, 0})
		fmt.Fprintf(out, `<path d="M%.1f %dv%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s</text>`+"\n",
			x, y0, panelH, x, y0+panelH+16, number(math.Pow(10, d)))
	}
	for i, c := range curves {
		if len(c) == 0 {
			continue
		}
		fmt.Fprint(out, `<path fill="none" stroke-width="2" stroke="`, lines[i].colour, `"`)
		if lines[i].dashed {
			fmt.Fprint(out, ` stroke-dasharray="4 3"`)
		}
		fmt.Fprint(out, ` d="`)
		for n, q := range c {
			x, y := at(q)
			fmt.Fprintf(out, "%c%.1f %.1f", "ML"[min(n, 1)], x, y)
		}
		fmt.Fprintln(out, `"/>`)
		x, y := at(c[len(c)-1])
		fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", x, y, lines[i].colour)
	}
}

// niceStep returns the distance between the marks of an axis up to top: about five of them, at round numbers.
func niceStep(top float64) float64 {
	if top <= 0 {
		return 1
	}
	scale := math.Pow(10, math.Floor(math.Log10(top/4)))
	for _, n := range []float64{1, 2, 5} {
		if n*scale >= top/5 {
			return n * scale
		}
	}
	return 10 * scale
}

func number(v float64) string {
	for _, u := range []struct {
		of     float64
		suffix string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= u.of {
			return fmt.Sprintf("%g%s", math.Round(v/u.of*100)/100, u.suffix)
		}
	}
	return fmt.Sprintf("%g", math.Round(v*100)/100)
}
