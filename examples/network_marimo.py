"""What network.ipynb shows, for accounts of your choice: marimo edit network_marimo.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(app_title="A network in pictures")


@app.cell
def _():
    import os

    import duckdb
    import marimo as mo
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
    from skein_blue import Skein

    skein = Skein(os.environ.get("SKEIN_SERVER", "http://127.0.0.1:3210"))
    export = os.environ.get("SKEIN_EXPORT", "graph")  # skein export --format parquet graph
    return duckdb, export, mo, np, os, pd, plt, skein


@app.cell
def _(duckdb, export, np, pd):
    # PageRank, from Parquet: ids are row numbers. An account without follows shares its rank among all.
    db = duckdb.connect(config={"file_search_path": export})
    accounts = db.sql("SELECT id, did FROM 'accounts/*.parquet' ORDER BY id").df()
    edges = db.sql("SELECT DISTINCT actor, subject FROM 'edges/follow/*.parquet' WHERE actor <> subject").df()
    actor, subject = edges["actor"].to_numpy(np.int64), edges["subject"].to_numpy(np.int64)
    n = len(accounts)
    out = np.bincount(actor, minlength=n)
    rank = np.full(n, 1 / n)
    for _ in range(100):
        flow = np.bincount(subject, rank[actor] / out[actor], n)
        rank = 0.15 / n + 0.85 * (flow + rank[out == 0].sum() / n)
    ranks = pd.Series(rank, accounts["did"]).sort_values(ascending=False)
    return (ranks,)


@app.cell
def _(mo, ranks):
    chosen = mo.ui.multiselect(list(ranks.index[:1000]), list(ranks.index[:5]), label="accounts, by PageRank", full_width=True)
    edge = mo.ui.dropdown(["followers", "follows", "blockers"], "followers", label="their")
    mo.vstack([mo.md("# A network in pictures"), chosen, edge])
    return chosen, edge


@app.cell
def _(chosen, edge, mo, plt, ranks, skein):
    top = chosen.value
    mo.stop(len(top) < 3, "Choose three accounts or more.")
    handles = skein.query(f"members({', '.join(top)})", names=True).get("handles", {})
    names = {did: "@" + handles[did] if did in handles else "…" + did[-8:] for did in top}
    sets = [f"{edge.value}({did})" for did in top]
    plt.close("all")
    ranks[top].rename(names).plot.barh(title="PageRank", ylabel="", figsize=(6, 3))
    return names, sets, top


@app.cell
def _(edge, names, pd, plt, sets, skein, top):
    # Growth: when the members came.
    growth = {}
    for did, set_ in zip(top, sets):
        times = skein.histogram(set_)
        growth[did] = pd.Series({pd.Timestamp(b["start"]): b["count"] for b in times["buckets"]}, dtype=int).cumsum() + times.get("earlier", 0)
    growth_figure, growth_axes = plt.subplots(figsize=(6, 3))
    for member, series in growth.items():
        growth_axes.step(series.index, series, where="post", label=names[member])
    growth_axes.set_title(f"Growth of {edge.value}")
    growth_axes.legend()
    growth_figure.autofmt_xdate()
    growth_figure
    return (growth,)


@app.cell
def _(names, plt, sets, skein, top):
    # Circles, of the first three.
    a, b, c = sets[:3]
    circles = {
        (-1.0, 0.6): skein.count(f"except({a}, {b}, {c})").total,
        (1.0, 0.6): skein.count(f"except({b}, {a}, {c})").total,
        (0.0, -1.2): skein.count(f"except({c}, {a}, {b})").total,
        (0.0, 0.8): skein.count(f"except(intersect({a}, {b}), {c})").total,
        (-0.65, -0.35): skein.count(f"except(intersect({a}, {c}), {b})").total,
        (0.65, -0.35): skein.count(f"except(intersect({b}, {c}), {a})").total,
        (0.0, 0.05): skein.count(f"intersect({a}, {b}, {c})").total,
    }
    circle_figure, circle_axes = plt.subplots(figsize=(5, 5))
    for account, x, y, color in zip(top, (-0.6, 0.6, 0), (0.4, 0.4, -0.65), ("tab:blue", "tab:orange", "tab:green")):
        circle_axes.add_patch(plt.Circle((x, y), 1.05, alpha=0.35, color=color))
        circle_axes.annotate(names[account], (2.1 * x, 1.6 if y > 0 else -1.9), ha="center", color=color)
    for place, total in circles.items():
        circle_axes.annotate(f"{total:,}", place, ha="center", va="center")
    circle_axes.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal")
    circle_axes.axis("off")
    circle_figure
    return (circles,)


@app.cell
def _(names, np, plt, sets, skein):
    # Overlap, of up to 20.
    shared = skein.overlap(sets[:20])
    totals, pairs = np.array(shared["totals"]), np.array(shared["pairs"])
    smaller = np.maximum(np.minimum.outer(totals, totals), 1)
    overlap_figure, overlap_axes = plt.subplots(figsize=(6, 5))
    overlap_axes.imshow(pairs / smaller, vmin=0, vmax=1, cmap="Blues")
    for i, j in np.ndindex(pairs.shape):
        overlap_axes.annotate(f"{pairs[i, j]:,}", (j, i), ha="center", va="center", color="white" if 2 * pairs[i, j] > smaller[i, j] else "black")
    labels = list(names.values())[:20]
    overlap_axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    overlap_axes.set_yticks(range(len(labels)), labels)
    overlap_axes.set_title("Overlap, as a share of the smaller set")
    overlap_figure
    return pairs, totals


if __name__ == "__main__":
    app.run()
