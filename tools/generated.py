"""Files of docs/ that a tool makes and a test keeps up to date."""
import sys


def write_or_check(path, text):
    """Writes `text` to `path`; with --check only compares them. Returns the exit status: 1 where they differ."""
    if "--check" not in sys.argv[1:]:
        path.write_text(text)
        return 0
    if path.is_file() and path.read_text() == text:
        return 0
    print(f"{path} is not up to date; run {sys.argv[0]}")
    return 1
