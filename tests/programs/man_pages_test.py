"""`lockstep --version`, and the manual pages that the `lockstep` command makes of its own options."""
import re
import shutil
import subprocess
import unittest

from harness import BINARY, ProgramTest

COMMAND = BINARY / "bin" / "lockstep"
BUILT = BINARY / "share" / "man" / "man1"
FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


class Version(ProgramTest):
    def test_tells_what_it_was_built_with(self):
        result = self.run_program(COMMAND, "--version")
        self.assertEqual((result.code, result.err), (0, ""))
        first, *facts = result.out.splitlines()
        self.assertRegex(first, r"^lockstep \d+\.\d+\.\d+$")
        facts = dict(re.split(r":\s+", line, maxsplit=1) for line in facts)
        self.assertEqual(list(facts), ["commit", "LibTorch", "C++ ABI", "compiler", "build type", "CUDA library", "built on"])
        cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (BINARY / "CMakeCache.txt").read_text(), re.M))
        version, folder = facts["LibTorch"].split(", ")
        self.assertEqual(folder, cache["LOCKSTEP_TORCH_ROOT"])
        header = (BINARY / folder / "include/torch/headeronly/version.h").read_text()
        self.assertEqual(version, ".".join(re.search(rf"#define TORCH_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")))
        self.assertIn(cache["CMAKE_BUILD_TYPE"], facts["build type"])
        self.assertIn("_GLIBCXX_USE_CXX11_ABI=1", facts["C++ ABI"])
        self.assertRegex(facts["commit"], r"^([0-9a-f]{40}(, with changes)?|unknown)$")


class ManPages(ProgramTest):
    def setUp(self):
        super().setUp()
        result = self.run_program(COMMAND, "man-pages", self.folder / "man1")
        self.assertEqual((result.code, result.out, result.err), (0, "", ""))
        help_text = self.run_program(COMMAND, "--help").out.split("Subcommands:")[1]
        self.verbs = re.findall(r"^  ([\w-]+)", help_text, re.M)
        self.pages = {verb: self.folder / "man1" / f"lockstep-{verb}.1" for verb in self.verbs} | {"": self.folder / "man1" / "lockstep.1"}

    def test_every_verb_has_a_page_and_the_build_made_the_same(self):
        self.assertIn("run", self.verbs)
        self.assertEqual(sorted(self.pages.values()), sorted((self.folder / "man1").iterdir()))
        self.assertEqual({page.name: page.read_text() for page in self.pages.values()}, {page.name: page.read_text() for page in BUILT.iterdir()})

    def test_every_option_of_help_is_in_the_page(self):
        for verb, page in self.pages.items():
            text = re.sub(r"\\f[BIR]", "", page.read_text()).replace("\\-", "-")
            help_text = self.run_program(COMMAND, *filter(None, [verb]), "--help").out
            flags = {flag for line in help_text.splitlines() if line.startswith("  -") for flag in FLAG.findall(line)}
            self.assertIn("--help", flags)
            with self.subTest(verb):
                self.assertEqual({flag for flag in flags if not re.search(rf"(?<![\w-]){flag}(?![\w-])", text)}, set())
                self.assertTrue(all(verb in text for verb in self.verbs) if not verb else f"lockstep {verb} [OPTION]..." in text)

    def test_formatters_have_nothing_to_object_to(self):
        linters = {"groff": ["-man", "-Tutf8", "-ww", "-z"], "mandoc": ["-Tlint", "-Wwarning"], "man": ["--warnings", "-E", "UTF-8", "-l"]}
        for linter, flags in linters.items():
            if shutil.which(linter) is None:
                continue
            for page in self.pages.values():
                with self.subTest(linter, page=page.name):
                    done = subprocess.run([linter, *flags, page], capture_output=True, text=True, env=self.environment(LC_ALL="C.UTF-8"))
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertEqual("" if linter == "man" else done.stdout, "")

    def test_a_folder_that_cannot_be_made_is_named(self):
        (self.folder / "file").write_text("")
        self.assert_refused(self.run_program(COMMAND, "man-pages", self.folder / "file" / "man1"), 1, "/file'", "File exists")
        self.assert_refused(self.run_program(COMMAND, "man-pages"), 2, "FOLDER is required")


if __name__ == "__main__":
    unittest.main()
