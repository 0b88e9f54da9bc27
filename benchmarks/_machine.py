"""What measured times depend on: the machine, and the versions of the packages that did it."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "torch", "lightgbm", "polars", "duckdb")


def describe_machine():
    """Processor, load, memory, system and versions as text; no name of a host and no path."""
    load = f"{os.getloadavg()[0]:.1f} busy at the start" if hasattr(os, "getloadavg") else ""
    parts = [_processor(), f"{os.cpu_count()} cores", load, _memory()]
    parts += [f"{platform.system()} {platform.machine()}", f"Python {platform.python_version()}"]
    parts += [f"{name} {_version(name)}" for name in PACKAGES]
    return ", ".join(part for part in parts if part)


def _processor():
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _memory():
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return ""
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
