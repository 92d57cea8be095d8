"""run_part.py I/N FILE: of a file of unit tests, the Ith and every Nth after it, so that CTest can run the N parts at once."""
import importlib.util
import pathlib
import sys
import unittest


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def load(file):
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    part, count = map(int, sys.argv[1].split("/"))
    tests = list(tests_of(unittest.defaultTestLoader.loadTestsFromModule(load(pathlib.Path(sys.argv[2])))))
    if not 1 <= part <= count <= len(tests):
        sys.exit(f"part {part} of {count}, of {len(tests)} tests")
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(tests[part - 1::count]))
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
