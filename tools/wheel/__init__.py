"""Where the C++ library lockstep lies, for those who build and start programs with it. Training needs no Python."""
import importlib.util
import pathlib
import re

from ._built import TORCH_VERSION, VERSION as __version__

#: The folder with bin/, include/, lib/ and share/.
root = pathlib.Path(__file__).resolve().parent


def torch_folder():
    """The folder of the torch that Python would import, or None. Nothing is imported."""
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def torch_problem():
    """What is wrong with the torch that is installed, as a sentence, or None."""
    needed = f"this lockstep was built for torch {TORCH_VERSION}"
    remedy = f'pip install "torch=={TORCH_VERSION}.*"'
    folder = torch_folder()
    if folder is None:
        return f"torch is not installed; {needed}: {remedy}"
    try:
        found = re.search(r"__version__ = ['\"]([^'\"]+)", (folder / "version.py").read_text())
    except OSError:
        found = None
    version = found.group(1) if found else "of an unknown version"
    if not version.startswith(TORCH_VERSION + "."):
        return f"torch {version} in {folder} does not fit; {needed}: {remedy}, or install the lockstep that was built for that torch"
    return None


def cmake_prefix_path():
    """What CMAKE_PREFIX_PATH must hold for find_package(lockstep) to find lockstep and torch, separated by semicolons."""
    folder = torch_folder()
    beside = folder is None or folder == root.parent / "torch"
    return str(root) if beside else f"{root};{folder}"


if problem := torch_problem():
    raise ImportError(problem)
