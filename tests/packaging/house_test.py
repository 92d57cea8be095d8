"""tools/check_house.py finds in a made-up tree what was put there."""
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_house.py"
TREE = {
    "src/pipe/valve.h": '#pragma once\n#include "pipe/flow.h"\nclass Valve {\n  virtual void open() = 0;\n};\n',
    "src/pipe/valve.cpp": '#include "pipe/valve.h"\n',
    "src/pipe/flow.h": "#pragma once\nstruct Flow {};\n",
    "src/pipe/flow.cpp": '#include "pipe/flow.h"\n#include "pipe/valve.h"\n',
    "src/pipe/ball/ball.cpp": '#include "pipe/valve.h"\nclass Ball final : public Valve {\n  void open() override;\n};\n'
                              "void turn(TrainerState& state, const TrainerState& old);\n",
    "src/pipe/ball/gear.h": "#pragma once\n",
    "src/pipe/ball/arm.cpp": '#include "pipe/gate/plate.h"\n',
    "src/pipe/gate/plate.h": '#pragma once\n#include "pipe/ball/gear.h"\n',
    "src/pipe/rod.cpp": '#include "pipe/ball/gear.h"\n' + "// A rod.\n" * 100,
    "tests/pipe/valve_test.cpp": '#include "pipe/valve.h"\n',
}
EXPECTED = [
    "pipe              9    ",
    "Private headers with one includer: 2\n  src/pipe/flow.h\n  src/pipe/gate/plate.h\n",
    "Pairs below 60 lines: 2\n    4 src/pipe/flow.h src/pipe/flow.cpp\n    6 src/pipe/valve.h src/pipe/valve.cpp\n",
    "Cycles between files: 1\n  2: pipe/flow pipe/valve\n",
    "Cycles between subfolders of a module: 1\n  pipe/ball pipe/gate\n",
    "Classes with virtual functions and one subclass: 1\n  Valve (src/pipe/valve.h)\n",
    f"{'files below 30 lines':40}       8\n",
    f"{'mutable references to TrainerState':40}       1\n",
    f"{chr(39).join(['hops of ', 'water', ''])} ".ljust(40) + "       2\n",
]

with tempfile.TemporaryDirectory() as folder:
    for name, text in TREE.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    journey = "water=src/pipe/valve.cpp,src/pipe/flow.cpp,src/pipe/gone.cpp"
    told = subprocess.run([sys.executable, SCRIPT, folder, "--journey", journey], check=True, capture_output=True, text=True).stdout
missing = [text for text in EXPECTED if text not in told]
sys.exit("\n".join(["check_house.py does not say:", *missing, "but:", told]) if missing else 0)
