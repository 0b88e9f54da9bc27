"""Thumbnails of the gallery: the first panel of a figure of several, large enough to be read."""

from pathlib import Path

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper
from sphinx_gallery.utils import scale_image


def with_first_panel(block, block_vars, gallery_conf, **kwargs):
    """Scraper of the figures; beside the first of an example, its first panel in ``panels/``."""
    script = Path(block_vars["src_file"]).stem
    panel = Path(gallery_conf["src_dir"], "auto_examples", "panels", f"{script}.png")
    figures = plt.get_fignums()
    if figures and len(block_vars["image_path_iterator"]) == 0:
        save_first_panel(plt.figure(figures[0]), panel)
    return matplotlib_scraper(block, block_vars, gallery_conf, **kwargs)


def save_first_panel(figure, path):
    """The first axes with their labels, if the figure has others beside or below them."""
    path.unlink(missing_ok=True)
    axes = [each for each in figure.axes if each.get_label() != "<colorbar>"]
    if len(axes) > 1:
        figure.canvas.draw()
        box = axes[0].get_tightbbox(figure.canvas.get_renderer()).padded(8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, bbox_inches=box.transformed(figure.dpi_scale_trans.inverted()))


def replace_thumbnails(app):
    """The panels as thumbnails, after the gallery was made."""
    folder = Path(app.srcdir, "auto_examples")
    for panel in sorted(folder.glob("panels/*.png")):
        for thumbnail in folder.glob(f"*/images/thumb/sphx_glr_{panel.stem}_thumb.png"):
            scale_image(panel, thumbnail, *app.config.sphinx_gallery_conf["thumbnail_size"])


def setup(app):
    # After sphinx_gallery, which listens with the default priority of 500.
    app.connect("builder-inited", replace_thumbnails, priority=900)
    return {"parallel_read_safe": True}
