"""Which kind of frame a transformer gives back."""

from sklearn import get_config

__all__ = ["FrameOutput"]


class FrameOutput:
    """``set_output`` of transformers that return the kind of frame they are given.

    scikit-learn's own would wrap arrays; by default a frame stays of its kind here.
    """

    def set_output(self, *, transform=None):
        """Set the kind of frame that comes out.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            With ``"default"`` a frame stays of its kind, and an array an array. None changes
            nothing.

        Returns
        -------
        self : object
        """
        if transform not in ("default", "pandas", "polars", None):
            raise ValueError(
                f"transform must be 'default', 'pandas', 'polars' or None, got {transform!r}."
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _output_kind(self):
        config = getattr(self, "_sklearn_output_config", {})
        return config.get("transform", get_config()["transform_output"])
