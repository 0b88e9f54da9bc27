"""Names that columns of a role have in eight languages, and how well a name fits a role."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

#: English names of a role, those that say most first; its roles in the order of proposals.
NAMES = {
    "qid": "qid query_text query search_term search_query user_query keywords keyword search_text "
    "term phrase query_string query_id queryid search_phrase q",
    "session": "session session_id page_view_id pageview_id search_id serp_id request_id "
    "impression_id list_id page_id query_id view_id pageview page_view search_session_id "
    "event_group search_request",
    "doc": "doc doc_id docid document document_id sku product_id product item_id item asin url "
    "object_id listing_id article_id result_id hit_id hotel_id video_id doc_url product_sku page "
    "page_url landing_page",
    "position": "position pos rank slot item_position display_position ordinal serp_rank "
    "display_rank result_rank position_shown ranking place index",
    "click": "click clicked is_click is_clicked was_clicked clicks n_clicks click_count "
    "click_bool has_click ctr click_rate clicked_flag click_flag",
    "user": "user user_id userid customer customer_id visitor visitor_id client_id member_id "
    "account_id uid user_hash shopper_id",
    "impressions": "impressions n_impressions impression_count views n_views shows",
    "production": "production production_score ltr_score model_score ranker_score ranking_score "
    "served_score logged_score old_score",
    "propensity": "propensity examination exam_probability",
    "relevance": "relevance grade judgment relevance_label human_label annotation",
}
#: The same in German, French, Spanish, Italian, Portuguese, Japanese and Chinese, without accents.
_OTHERS = {
    "qid": (
        "suchbegriff suchanfrage anfrage suchwort suchtext suche",
        "requete recherche terme_recherche mot_cle mots_cles",
        "consulta busqueda termino_busqueda palabra_clave",
        "ricerca termine_ricerca parola_chiave interrogazione",
        "pesquisa busca termo_busca termo_pesquisa palavra_chave",
        "クエリ 検索語 検索ワード 検索キーワード キーワード",
        "查询 查询词 搜索词 搜索 关键词 检索词",
    ),
    "session": (
        "such_id seitenaufruf sitzung ergebnisseite seiten_id suchvorgang",
        "page_vue vue_page id_recherche id_page affichage seance",
        "sesion vista_pagina id_busqueda id_pagina pagina_resultados",
        "sessione vista_pagina id_ricerca id_pagina",
        "sessao visualizacao_pagina id_busca id_pesquisa id_pagina",
        "セッション 検索ID ページビュー ページID リクエスト",
        "会话 请求 页面浏览 搜索ID 请求ID 页面ID",
    ),
    "doc": (
        "artikel artikelnummer produkt produkt_id dokument angebot treffer",
        "produit article id_produit offre annonce",
        "producto articulo documento id_producto anuncio oferta",
        "prodotto articolo id_prodotto annuncio",
        "produto artigo id_produto item_produto",
        "商品 商品ID 文書 品番 アイテム 製品",
        "商品编号 文档 产品 物品 宝贝",
    ),
    "position": (
        "rang platz stelle platzierung reihenfolge",
        "place rang_affiche ordre emplacement",
        "posicion puesto orden lugar rango",
        "posizione posto ordine rango",
        "posicao ordem lugar colocacao",
        "順位 位置 掲載順位 表示順位 ランク",
        "排名 位次 展示位置 序号",
    ),
    "click": (
        "klick geklickt angeklickt klicks",
        "clic clique a_clique clics",
        "clics hizo_clic pulsado clicado",
        "cliccato clic_fatto",
        "clicou clicado cliques clique",
        "クリック クリック数 クリック有無",
        "点击 是否点击 点击数",
    ),
    "user": (
        "nutzer kunde kunden_id benutzer besucher",
        "utilisateur client id_client visiteur",
        "usuario cliente id_cliente visitante",
        "utente id_utente visitatore",
        "id_usuario id_visitante",
        "ユーザー ユーザーID 顧客 会員",
        "用户 用户ID 客户 会员",
    ),
    "impressions": (
        "impressionen einblendungen anzeigen_anzahl",
        "affichages nb_affichages",
        "impresiones",
        "impressioni visualizzazioni",
        "impressoes exibicoes",
        "表示回数 インプレッション",
        "展示次数 曝光 曝光数",
    ),
}
#: Words of fewer letters are parts of many others: they count alone.
_SHORT = 4


def plain_name(name: str) -> str:
    """A name in lower case and without accents, with underscores between words."""
    # queryId and "query id" are query_id.
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))
    letters = unicodedata.normalize("NFKD", parted.casefold())
    bare = "".join(each for each in letters if not unicodedata.combining(each))
    # Kana are one letter again after their marks are parted from them.
    return re.sub(r"[\W_]+", "_", unicodedata.normalize("NFC", bare)).strip("_")


def _known(role):
    """Plain names of a role in all languages, those that say most first."""
    words = " ".join([NAMES[role], *_OTHERS.get(role, ())]).split()
    return [*dict.fromkeys(map(plain_name, words))]


_KNOWN = {role: _known(role) for role in NAMES}
#: What a page is called. It may also be the page of a product, or the number of a page of results:
#: the word decides only between columns that part the pages alike.
_PAGE = {*map(plain_name, ("page", "Seite", "pagina", "ページ", "页面"))}


def name_fit(name: str, role: str) -> float:
    """How well a name fits a role: above 1 if it is a known one, 1 if it holds one, or 0."""
    plain = plain_name(name)
    known = _KNOWN[role]
    if plain in known:
        return 2 - known.index(plain) / len(known)
    parts = f"_{plain}_"
    return float(any(_holds(parts, plain, word) for word in known))


def is_called_page(name: str) -> bool:
    """Whether a name is the word for a page and nothing else."""
    return plain_name(name) in _PAGE


def _holds(parts, plain, word):
    """Whether a name holds a word: as one of its parts, or, of a long word, anywhere."""
    if f"_{word}_" in parts:
        return True
    # Compounds hold words without a mark between, and so do names in Japanese and Chinese.
    is_long = len(word) > _SHORT or not word.isascii()
    return is_long and word in plain


def first_named(names: list[str], role: str, fits: Callable[[str], bool]) -> str | None:
    """The column that probably has a role by a known name, and whose values fit."""
    named = [name for name in names if name_fit(name, role) > 1 and fits(name)]
    # Of columns with the same plain name, the first counts.
    return max(named, key=lambda name: name_fit(name, role), default=None)
