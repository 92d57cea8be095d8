"""The README shows the very program that examples/01_trainer builds."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
shown = re.search(r"```cpp\n(.*?)```", (root / "README.md").read_text(), re.S).group(1)
built = (root / "examples" / "01_trainer" / "main.cpp").read_text().split("\n", 1)[1]
sys.exit(0 if shown == built else "README.md and examples/01_trainer/main.cpp differ")
