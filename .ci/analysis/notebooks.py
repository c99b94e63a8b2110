"""Runs the notebooks of examples/, and compares what they show with networkx and with the sets' members.

    notebooks.py FOLDER

SKEIN_SERVER and SKEIN_EXPORT name the server and the export.
"""

import math
import sys
from pathlib import Path


def check(cells):
    """Compares the variables of a notebook that has run."""
    import networkx

    skein, ranks, top, sets, circles = (cells[name] for name in ("skein", "ranks", "top", "sets", "circles"))
    dids = list(ranks.index)
    graph = networkx.DiGraph((a, b) for a in dids for b in skein.members(f"follows({a})") if a != b)
    graph.add_nodes_from(dids)
    for did, rank in networkx.pagerank(graph, alpha=0.85, tol=1e-12, max_iter=1000).items():
        assert math.isclose(ranks[did], rank, rel_tol=1e-6), (did, ranks[did], rank)
    assert list(top) == dids[: len(top)] and len(top) >= 5 and len(graph.edges) > 100

    a, b, c = (set(skein.members(f"followers({did})")) for did in top[:3])
    assert list(circles.values()) == [len(s) for s in (a - b - c, b - a - c, c - a - b, a & b - c, a & c - b, b & c - a, a & b & c)], circles
    members = [set(skein.members(s)) for s in sets]
    assert cells["pairs"].tolist() == [[len(x & y) for y in members] for x in members] and cells["totals"].tolist() == list(map(len, members))
    growth = cells.get("growth") or {top[0]: cells["followers"]}
    for did, series in growth.items():
        assert series.is_monotonic_increasing and series.iloc[-1] == skein.count(f"followers({did})").total > 0, (did, series)
    print(f"PageRank of {len(dids)} accounts, {len(growth)} growths, 7 regions, {len(sets)} overlapping sets, as expected")


def jupyter(path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), f"{path}: strip the outputs"
    notebook.cells.append(nbformat.v4.new_code_cell(f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import notebooks; notebooks.check(globals())"))
    NotebookClient(notebook, timeout=120).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 4, len(pictures)
    return "".join(output.get("text", "") for output in outputs).strip()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print("network.ipynb:", jupyter(folder / "network.ipynb"))
    sys.path.append(str(folder))
    import network_marimo

    outputs, cells = network_marimo.app.run()
    assert sum(output is not None for output in outputs) == 5, outputs
    print("network_marimo.py: ", end="")
    check(cells)
