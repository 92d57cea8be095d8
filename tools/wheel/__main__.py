"""python -m lockstep: tells programs that are built with lockstep where it lies."""
import argparse

from . import __version__, cmake_prefix_path, root


def main():
    parser = argparse.ArgumentParser(prog="python -m lockstep", description=__doc__)
    parser.add_argument("--version", action="version", version=f"lockstep {__version__}")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cmake-prefix-path", action="store_true", help="print what cmake -DCMAKE_PREFIX_PATH=... takes")
    what.add_argument("--root", action="store_true", help="print the folder with bin/, include/, lib/ and share/")
    what.add_argument("--pkg-config-path", action="store_true", help="print what PKG_CONFIG_PATH takes")
    chosen = parser.parse_args()
    if chosen.cmake_prefix_path:
        print(cmake_prefix_path())
    else:
        print(root / "lib" / "pkgconfig" if chosen.pkg_config_path else root)


main()
