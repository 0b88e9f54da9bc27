"""Models and judgments in the formats of search engines, and models on disk without pickle."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._click_judgments import click_judgments as click_judgments
    from ._export import export_model as export_model
    from ._judgments import export_judgments as export_judgments
    from ._judgments import read_judgments as read_judgments
    from ._saved import load_model as load_model
    from ._saved import save_model as save_model
else:
    from .._base._lazy import lazy_names

    # Lazy, so that judgments and trees do not import torch.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_click_judgments": ("click_judgments",),
            "_export": ("export_model",),
            "_judgments": ("export_judgments", "read_judgments"),
            "_saved": ("load_model", "save_model"),
        },
    )
