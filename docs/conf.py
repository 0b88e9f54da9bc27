"""Sphinx configuration: ``make docs``; neither the build nor a page needs the network."""

import os
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util.inspect import signature_from_str, stringify_signature
from sphinx_gallery.sorting import ExplicitOrder

import skultr

# The directives of docs/papers and docs/benchmarks.rst, thumbnails and notebooks of the gallery.
sys.path.insert(0, str(Path(__file__).parent / "_ext"))
import notebooks

project = "skultr"
copyright = "The skultr developers"
author = "The skultr developers"
version = release = skultr.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # after mathjax: the same, from files beside the pages
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxext.opengraph",
    "sphinx_gallery.gen_gallery",
    "paper_links",
    "paper_results",
    "speed_results",
    "thresholds",
    "published_settings",
    "thumbnails",
    "notebooks",
]
exclude_patterns = ["_build", "**/README.txt", "**/sg_execution_times.rst"]
templates_path = ["_templates"]
default_role = "literal"
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
# References are numbered in each docstring alone, and many are not cited in its text.
suppress_warnings = ["ref.footnote"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    # One example per core, each with its share of the threads.
    "parallel": min(os.cpu_count() or 1, 4),
    "gallery_dirs": "auto_examples",
    "first_notebook_cell": notebooks.INSTALL,
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"__init__\.py|quickstart\.py|\b(simulated|german)_shop\.py",
    "within_subsection_order": ExplicitOrder(
        [
            "plot_real_clicks.py",
            "plot_naive_against_debiased.py",
            "plot_from_lambdarank.py",
            "plot_examination_curve.py",
            "plot_what_breaks_a_correction.py",
            "plot_documents_are_pairs.py",
            "plot_features_that_change.py",
            "plot_is_my_log_identifiable.py",
            "plot_quality_against_clicks.py",
            "plot_repairs_compared.py",
            "plot_which_factors_to_merge.py",
            "plot_cost_of_interventions.py",
            "plot_how_likely_identifiable.py",
            "plot_bias_factors_of_a_real_log.py",
            "plot_which_propensities.py",
            "plot_strong_production.py",
            "plot_real_logs.py",
            "plot_users.py",
            "plot_user_aware.py",
            "plot_sessions.py",
            "plot_clusters_table.py",
            "plot_ips_scorer.py",
            "plot_trust_bias.py",
            "plot_how_many_dimensions.py",
            "plot_embeddings.py",
            "plot_base_vector.py",
            "plot_cut_off.py",
            "plot_gamma.py",
            "plot_position_bias.py",
            "plot_sessions_and_noise.py",
            "plot_variants.py",
            "plot_wrong_ndcg.py",
            "plot_what_cmip_sees.py",
            "plot_metrics_in_and_out.py",
            "plot_choosing_offline.py",
            "plot_comparing_methods.py",
            "plot_queries_stay_whole.py",
            "plot_real_logs_perplexity.py",
            "plot_german_shop.py",
            "plot_ubi_sample.py",
            "plot_simulated_shop.py",
            "plot_log_on_disk.py",
            "plot_progress.py",
            "plot_ab_test_predicted.py",
            "plot_log_that_cannot_tell.py",
            "plot_experiment_planned.py",
            "plot_what_to_watch.py",
            "*",
        ]
    ),
    # Examples on the page of each class, and the classes in the code of each example as links.
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("skultr",),
    "image_scrapers": ("thumbnails.with_first_panel",),
    "thumbnail_size": (600, 420),
    "reference_url": {"skultr": None},
    # That page takes its tables from other hosts.
    "write_computation_times": False,
    "min_reported_time": 0,
    "show_memory": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
}

# A copied block is code: without prompts, and without what the code prints.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# What a chat shows beside a link to a page: its title, its first sentence and one picture for all.
ogp_site_url = "https://skultr.readthedocs.io/en/latest/"
ogp_image = "_static/card.png"
ogp_image_alt = "skultr: learning to rank from clicks, without position bias"
ogp_social_cards = {"enable": False}

html_theme = "pydata_sphinx_theme"
html_title = "skultr"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["skultr.css"]
html_js_files = [(name, {"defer": "defer"}) for name in ("wide_figures.js", "folded_pages.js")]
html_show_sourcelink = False
# "fit" on the page of a class, not "DLARanker.fit".
toc_object_entries_show_parents = "hide"
html_theme_options = {
    "logo": {
        "text": f"skultr {version}",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo_dark.svg",
        "alt_text": "skultr - home",
    },
    "github_url": "https://github.com/skultr/skultr",
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "use_edit_page_button": False,
}
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "api": [], "install": []}


class NoMailTo(SphinxTransform):
    """``nDCG@10`` is no address, though reStructuredText takes it for one."""

    default_priority = 700

    def apply(self):
        for link in list(self.document.findall(nodes.reference)):
            if link.get("refuri", "").startswith("mailto:"):
                link.replace_self(link.children)


def link_to_pages(app, pagename, templatename, context, doctree):
    """Links from the source to the documentation name the page, which has one class or function.

    viewcode takes one public module for all of a file: ``skultr`` for ``UserAwareIPSRanker``, and
    then for ``skultr.rankers.IPSRanker`` beside it, whose place in its page has another name.
    """
    if pagename.startswith("_modules/"):
        back = r'(class="viewcode-back" href="[^"#]*)#[^"]*'
        context["body"] = re.sub(back, r"\1", context["body"])


def in_order_of_docstring(app, what, name, obj, options, signature, returns):
    """Own parameters first, as in the docstring: dataclasses put those of base classes first."""
    if what != "class" or not signature or not obj.__doc__:
        return None
    found = signature_from_str(signature)
    documented = re.findall(r"^ *(\w+) :", obj.__doc__, flags=re.MULTILINE)

    def place(each):
        # Only what must be named may move.
        moves = each.kind is each.KEYWORD_ONLY and each.name in documented
        return each.kind, documented.index(each.name) if moves else -1

    ordered = sorted(found.parameters.values(), key=place)
    return stringify_signature(found.replace(parameters=ordered)), returns


def setup(app):
    app.connect("autodoc-process-signature", in_order_of_docstring)
    app.add_transform(NoMailTo)
    app.connect("html-page-context", link_to_pages)
