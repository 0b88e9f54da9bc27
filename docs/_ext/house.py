"""Draws ``docs/_static/house.svg`` for the architecture page: ``python docs/_ext/house.py``."""

from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

#: Floors from the ground up, each with its rooms: name, and what it answers in one sentence.
FLOORS = [
    {"_base": "Types, threads, progress, and scikit-learn's private names."},
    {"exceptions": "Errors and warnings that users catch."},
    {
        "datasets": "Where do documents and logs come from?",
        "_log": "What may X hold, and what does it mean?",
    },
    {"_models": "What does a model say a click is? Tables and their solvers."},
    {
        "_torch": "What do networks share? Losses, modules, the loop.",
        "simulation": "Which clicks would a user make?",
        "identifiability": "Does the log determine relevance, and what would repair it?",
    },
    {"propensity": "How likely was a row examined, and what is done with that?"},
    {
        "metrics": "How good is a ranking, a click model, a debiasing?",
        "model_selection": "How are queries split and models chosen?",
        "preprocessing": "How do transformers keep roles?",
    },
    {"rankers": "Who learns to order documents?"},
    {"click_models": "How do users browse a list?", "plotting": "How does it look?"},
    {
        "evaluation": "What would a ranking be worth, and which of two is better?",
        "serving": "How does a model get into a search engine?",
    },
    {
        "testing": "What must a ranker keep? The contracts as code.",
        "command": "What does a log hold? skultr check, skultr ubi.",
    },
    {"__main__": "python -m skultr"},
]
#: The way of X and y through ``IPSRanker().fit(X, y)``: a room, and what happens there.
PATH = [
    ("rankers", "forgets the last fit and asks for the log"),
    ("_log", "reads roles, faults and rows: a ClickLog leaves"),
    ("identifiability", "warns unless the log determines relevance"),
    ("propensity", "is the examination curve known, or to be learned?"),
    ("_models", "fits the curve to documents that moved"),
    ("_torch", "module, loss, batches of lists: the loop of skorch"),
    ("rankers", "sets attributes; predict reads features only"),
]

HOUSE = 760
LANE = 46  # each step of the path has a lane of its own, to the right of the house
WIDTH = HOUSE + LANE * (len(PATH) + 1)
FLOOR = 62
GAP = 8
INK = "#1b1f24"
ROOM = "#eef3f8"
ROAD = "#b3261e"


def _text(x, y, words, *, size=12, weight="normal", fill=INK, anchor="start"):
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" fill="{fill}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def _circle(x, y, number):
    disc = f'<circle cx="{x:.0f}" cy="{y:.0f}" r="10" fill="{ROAD}"/>'
    return [disc, _text(x, y + 4, str(number), weight="bold", fill="white", anchor="middle")]


def _room(x, y, width, name, sentence):
    """A box with its name and its sentence, wrapped to its width."""
    box = f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{FLOOR}" rx="4"'
    lines = [f'{box} fill="{ROOM}" stroke="#8fa3b5"/>']
    lines.append(_text(x + 10, y + 19, name, size=14, weight="bold"))
    # A letter of 12 pixels is about 6.2 wide.
    for i, line in enumerate(wrap(sentence, int((width - 20) / 6.2))):
        lines.append(_text(x + 10, y + 36 + 15 * i, line))
    return lines


def house():
    """The picture as SVG."""
    height = len(FLOORS) * (FLOOR + GAP) + 40
    lines = [_text(GAP, 22, "A room imports only from floors below its own.", size=14)]
    level = {}
    for floor, rooms in enumerate(FLOORS):
        y = height - (floor + 1) * (FLOOR + GAP)
        width = (HOUSE - GAP * (len(rooms) + 1)) / len(rooms)
        for i, (name, sentence) in enumerate(rooms.items()):
            lines += _room(GAP + i * (width + GAP), y, width, name, sentence)
            level[name] = y + FLOOR / 2
    lines += _path([level[room] for room, _ in PATH])
    lines += _legend(HOUSE + 20, 48)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Helvetica, Arial, sans-serif">'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([head, ground, *lines, "</svg>", ""])


def _path(heights):
    """The steps of the path from left to right, each on the floor of its room."""
    stops = [(HOUSE + LANE * (i + 0.7), y) for i, y in enumerate(heights)]
    road = " ".join(f"{x:.0f},{y:.0f}" for x, y in stops)
    lines = [
        f'<line x1="{HOUSE}" y1="{y:.0f}" x2="{x:.0f}" y2="{y:.0f}" stroke="#c9d3dc"/>'
        for x, y in stops
    ]
    lines.append(f'<polyline points="{road}" fill="none" stroke="{ROAD}" stroke-width="2"/>')
    for number, (x, y) in enumerate(stops, 1):
        lines += _circle(x, y, number)
    return lines


def _legend(x, y):
    """What happens at each step."""
    lines = [_text(x, y, "The path of IPSRanker().fit(X, y)", size=14, weight="bold")]
    for number, (room, step) in enumerate(PATH, 1):
        y += 16
        lines += _circle(x + 10, y + 6, number)
        lines.append(_text(x + 28, y + 10, room, weight="bold"))
        for line in wrap(step, 52):
            y += 15
            lines.append(_text(x + 28, y + 10, line))
        y += 6
    return lines


if __name__ == "__main__":
    (Path(__file__).parents[1] / "_static" / "house.svg").write_text(house())
