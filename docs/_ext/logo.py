"""Draws logo, favicon and social card in ``docs/_static``: ``python docs/_ext/logo.py``.

A list of results: attention fades from the top to the bottom, and the best one stands below.
"""

from pathlib import Path

STATIC = Path(__file__).parents[1] / "_static"
#: Pages of the documentation that a link shows are shown with this picture, in this size.
CARD = (1200, 630)

INK = "#0f4c5c"
PAPER = "#f4f7f8"
#: The result that users should have seen.
BEST = "#e8833a"
#: Side of the square that a logo is drawn in.
SIDE = 64
#: Bars from the top to the bottom: y, length, and how much attention there is.
BARS = ((12, 44, 1.0), (28, 32, 0.6), (44, 20, 0.32))
HEIGHT = 9
LEFT = 10
#: Middle and radius of the best result, at the end of the last bar.
DOT = (45, 48.5, 7.5)


def logo(ink, paper=None):
    """The picture as SVG, on a rounded square if there is paper."""
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}">']
    if paper:
        lines.append(f'<rect width="{SIDE}" height="{SIDE}" rx="12" fill="{paper}"/>')
    for y, length, attention in BARS:
        place = f'x="{LEFT}" y="{y}" width="{length}" height="{HEIGHT}" rx="{HEIGHT / 2}"'
        lines.append(f'<rect {place} fill="{ink}" opacity="{attention}"/>')
    x, y, radius = DOT
    lines.append(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{BEST}"/>')
    return "\n".join([*lines, "</svg>", ""])


#: The logo in light and dark pages, and the icon of a tab, which may be either.
PICTURES = {
    "logo.svg": logo(INK),
    "logo_dark.svg": logo("#e8f1f2"),
    "favicon.svg": logo(PAPER, paper=INK),
}


def draw_card(path):
    """The picture that chats and networks show beside a link to a page."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Circle, FancyBboxPatch

    width, height = CARD
    figure = plt.figure(figsize=(width / 100, height / 100), dpi=100, facecolor=INK)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    scale = 6
    left = 90
    top = 60
    for y, length, attention in BARS:
        place = (left + LEFT * scale, top + y * scale)
        box = f"round,pad=0,rounding_size={HEIGHT * scale / 2}"
        bar = FancyBboxPatch(place, length * scale, HEIGHT * scale, boxstyle=box, lw=0)
        bar.set(facecolor=PAPER, alpha=attention)
        axes.add_patch(bar)
    x, y, radius = DOT
    axes.add_patch(Circle((left + x * scale, top + y * scale), radius * scale, color=BEST, lw=0))
    style = {"color": PAPER, "va": "top"}
    axes.text(540, 150, "skultr", fontsize=66, fontweight="bold", **style)
    claim = "Learning to rank from clicks,\nwithout position bias"
    axes.text(545, 290, claim, fontsize=26, **style)
    promise = "From a click log to a ranking, with the interface of scikit-learn"
    axes.text(150, 505, promise, fontsize=21, alpha=0.85, **style)
    figure.savefig(path, facecolor=INK)
    plt.close(figure)


if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (STATIC / name).write_text(picture)
    draw_card(STATIC / "card.png")
