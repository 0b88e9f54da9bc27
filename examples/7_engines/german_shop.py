"""A simulated shop whose log has what shops have, under German names, with the truth behind it.

``search_shop`` lets customers search: sponsored slots stand above the results, some customers open
a second page, phones and computers are read to different depths, prices and stock change by day,
customers prefer brands, clicks lead to carts and purchases, and a few customers are bots.
``write_days`` writes the log as Spark does, a folder for each day.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

_ADJECTIVES = """schwarz weiß rot blau grün klein groß leicht warm wasserdicht kabellos faltbar
günstig gebraucht robust leise elegant schmal rund modern"""
_NOUNS = """Schuhe Zelt Lampe Rucksack Kessel Jacke Stuhl Tisch Flasche Decke Kopfhörer Tasse
Schirm Kissen Messer Spiegel Uhr Schal Helm Fahrrad Bohrer Kamera Teppich Handtuch Regal
Grill"""
#: Every feature that is known when a customer searches; the last three change.
_STATIC = """Titel_BM25 Text_BM25 Kategorie_passt Listenpreis Bewertung Bewertungen Verkäufe_30T
Lieferzeit Bilder Alter_Tage"""
FEATURES = [*_STATIC.split(), "Preis", "Bestand", "Markentreue"]
#: What is logged of a search and of each place.
_SEARCH = "Zeit Suchvorgang Suche Kunde Gerät Platz Artikel gesponsert Punkte"
PAGE = 10
N_SLOTS = 2
N_BRANDS = 12
N_DAYS = 28
FIRST_DAY = np.datetime64("2026-01-05", "s")
#: By device: its share of the searches, how fast attention falls, and who opens the second page.
DEVICES = {"Handy": (0.6, 1.0, 0.15), "Rechner": (0.4, 0.5, 0.35)}
#: Who opened the second page looks at its results this often, of the times on the first.
SECOND_PAGE = 0.8
#: Of looks at a sponsored slot, those that consider it.
SLOT_CONSIDERED = 0.4
#: Bots click any result they show; each makes two searches in a hundred.
BOT_CLICKS = 0.3
SEARCHES_OF_BOT = 0.02


@dataclass(frozen=True)
class ShopLog:
    """A log, and what decided its clicks.

    ``log`` has one row per product shown; ``appeal`` is P(click | looked at) of each row; and
    ``bots`` are the customers that are none.
    """

    log: pd.DataFrame
    appeal: np.ndarray
    bots: list


def open_german_shop(n_queries=500, n_products=30, *, random_state=0):
    """Products by query, production's ``Punkte``, and ``Passung``: how well they fit."""
    rng = np.random.default_rng(random_state)
    pairs = product(_ADJECTIVES.split(), _NOUNS.split())
    words = rng.permutation([f"{noun} {adjective}" for adjective, noun in pairs])[:n_queries]
    n = n_queries * n_products
    title, text, sales, stars, price = rng.normal(size=(5, n))
    usual_price = np.repeat(rng.normal(3.5, 0.6, n_queries), n_products)
    shop = pd.DataFrame(
        {
            "Suche": np.repeat(words, n_products),
            "Artikel": [f"P{number:06d}" for number in range(n)],
            "Marke": rng.integers(N_BRANDS, size=n),
            "Gebot": rng.random(n),
            "Titel_BM25": np.exp(1.5 + 0.5 * title).round(3),
            "Text_BM25": np.exp(1.0 + 0.4 * (0.6 * title + 0.8 * text)).round(3),
            "Kategorie_passt": (rng.random(n) < 0.7).astype(int),
            "Listenpreis": np.exp(usual_price + 0.5 * price).round(2),
            "Bewertung": np.clip(4 + 0.6 * stars, 1, 5).round(1),
            "Bewertungen": rng.poisson(np.exp(2.5 + 0.9 * sales)),
            "Verkäufe_30T": rng.poisson(np.exp(2.0 + 0.9 * (0.8 * sales + 0.6 * stars))),
            "Lieferzeit": rng.integers(1, 8, n),
            "Bilder": rng.integers(1, 9, n),
            "Alter_Tage": rng.integers(1, 1500, n),
        }
    )
    # Customers look for a known brand of good reviews at a usual price; production knows words
    # and sales.
    fit = 0.9 * np.tanh(title) + 1.0 * shop["Kategorie_passt"] - 0.6 * price**2
    fit += 0.7 * stars * (shop["Bewertungen"] > 10) - 0.15 * shop["Lieferzeit"]
    known = title + 0.5 * text + 0.4 * sales
    return shop.assign(Passung=fit, Punkte=known)


def offers(products, brand, day, rng):
    """What changes: the price and the stock of the day, and the customer's share of the brand."""
    number = products["Artikel"].str[1:].astype(int).to_numpy()
    discount = np.choose(_drawn(number, day, 0, 6), [0, 0, 0, 0.1, 0.2, 0.3])
    stock = np.choose(_drawn(number, day, 1, 6), [0, 3, 8, 20, 60, 200])
    loyalty = np.where(products["Marke"] == brand, rng.uniform(0.3, 1, len(products)), 0)
    return products.assign(
        Preis=(products["Listenpreis"] * (1 - discount)).round(2),
        Bestand=stock,
        Markentreue=loyalty.round(2),
    )


def _drawn(number, day, which, n_values):
    """A number below ``n_values`` that each product keeps for a day."""
    return (number * 7919 + day * 104_729 + which * 15_485_863) % 1_000_003 % n_values


def appeal_of(rows):
    """P(click | looked at) of offers."""
    discount = 1 - rows["Preis"] / rows["Listenpreis"]
    logit = rows["Passung"] - 2.0 + 5 * discount + 1.5 * rows["Markentreue"]
    logit = logit - 2.0 * (rows["Bestand"] == 0)
    return (1 / (1 + np.exp(-logit))).to_numpy()


def cart_chance(rows):
    """P(put into the cart | clicked) of offers: by reviews and discount, not by what appeals."""
    discount = 1 - rows["Preis"] / rows["Listenpreis"]
    logit = 2 * (rows["Bewertung"] - 4) + 5 * discount
    return (0.5 / (1 + np.exp(-logit))).to_numpy()


def examination(place, device):
    """P(looked at) by place from 1, and device; a second page begins after ``PAGE``."""
    fall = np.array([DEVICES[name][1] for name in device])
    on_page = (place - 1) % PAGE + 1
    return np.where(place > PAGE, SECOND_PAGE, 1) / on_page**fall


def search_shop(shop, n_searches=20_000, *, temperature=0.2, n_bots=3, random_state=0):
    """Customers search; production ranks by ``Punkte``, with noise of this temperature."""
    rng = np.random.default_rng(random_state)
    searches = _searches(shop, n_searches, n_bots, rng)
    rows = _shown(shop, searches, temperature, rng)
    rows = offers(rows, rows["Nummer"] % N_BRANDS, rows["Tag_Nr"].to_numpy(), rng)
    appeal = appeal_of(rows)
    chance = appeal * examination(rows["Platz"].to_numpy(), rows["Gerät"])
    chance *= np.where(rows["gesponsert"] == 1, SLOT_CONSIDERED, 1)
    is_bot = rows["Nummer"].to_numpy() < n_bots
    clicks = rng.random(len(rows)) < np.where(is_bot, BOT_CLICKS, chance)
    carts = clicks & ~is_bot & (rng.random(len(rows)) < cart_chance(rows))
    sales = carts & (rng.random(len(rows)) < 0.6)
    outcomes = {"Klick": clicks, "Warenkorb": carts, "Kauf": sales}
    rows = rows.assign(**{name: values.astype(int) for name, values in outcomes.items()})
    bots = [_customer(number) for number in range(n_bots)]
    return ShopLog(rows[[*_SEARCH.split(), *FEATURES, *outcomes]], appeal, bots)


def _customer(number):
    return f"K-{number:05d}"


def _searches(shop, n_searches, n_bots, rng):
    """Who searches what and when, on which device, and how many pages they open."""
    words = shop["Suche"].unique()
    often = 1 / np.arange(10, len(words) + 10)
    is_bot = rng.random(n_searches) < SEARCHES_OF_BOT * n_bots
    # A customer searches four times.
    customer = rng.integers(n_bots, n_bots + n_searches // 4, n_searches)
    number = np.where(is_bot, rng.integers(max(n_bots, 1), size=n_searches), customer)
    second = np.sort(rng.integers(N_DAYS * 24 * 3600, size=n_searches))
    device = rng.choice([*DEVICES], n_searches, p=[share for share, _, _ in DEVICES.values()])
    opens = np.array([DEVICES[name][2] for name in device])
    return pd.DataFrame(
        {
            "Suchvorgang": [f"S{search:07d}" for search in range(n_searches)],
            "Query": rng.choice(len(words), n_searches, p=often / often.sum()),
            "Nummer": number,
            "Kunde": [_customer(each) for each in number],
            "Zeit": FIRST_DAY + second.astype("timedelta64[s]"),
            "Tag_Nr": second // (24 * 3600),
            "Gerät": device,
            "Seiten": 1 + (is_bot | (rng.random(n_searches) < opens)),
        }
    )


def _shown(shop, searches, temperature, rng):
    """The rows that each search shows: sponsored slots on some pages, and results below them."""
    n_products = len(shop) // shop["Suche"].nunique()
    candidates = searches["Query"].to_numpy()[:, None] * n_products + np.arange(n_products)
    scores = shop["Punkte"].to_numpy()[candidates]
    scores = scores + temperature * rng.gumbel(size=scores.shape)
    # On four pages in ten, the highest bids stand above the results.
    bids = shop["Gebot"].to_numpy()[candidates] + 0.3 * rng.random(scores.shape)
    has_slots = rng.random(len(searches)) < 0.4
    is_slot = (_rank(bids) <= N_SLOTS) & has_slots[:, None]
    place = _rank(np.where(is_slot, 1e6 + bids, scores))
    page, column = np.nonzero(place <= PAGE * searches["Seiten"].to_numpy()[:, None])
    rows = shop.iloc[candidates[page, column]].reset_index(drop=True)
    rows["Platz"] = place[page, column]
    rows["gesponsert"] = is_slot[page, column].astype(int)
    rows["Punkte"] = scores[page, column].round(4)
    rows = pd.concat([searches.iloc[page].reset_index(drop=True), rows], axis=1)
    return rows.sort_values(["Suchvorgang", "Platz"], ignore_index=True)


def _rank(scores):
    """The rank of each column in its row, from 1 for the highest score."""
    return np.argsort(np.argsort(-scores, axis=1), axis=1) + 1


def write_days(log, folder):
    """Parquet as Spark writes it: a folder for each day."""
    for day, rows in log.groupby(log["Zeit"].dt.strftime("%Y-%m-%d")):
        part = Path(folder) / f"Tag={day}"
        part.mkdir(parents=True)
        rows.to_parquet(part / "part-00000.snappy.parquet", index=False)
