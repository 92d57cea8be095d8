"""The pages of docs/tutorials: every block is compiled or run, and prints what the page says."""
import concurrent.futures
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "programs"), str(ROOT / "tools")]
import page_blocks  # noqa: E402
from harness import BINARY, SOURCE, ProgramTest, free_port  # noqa: E402

PAGES = SOURCE / "docs" / "tutorials"
AT_ONCE = 2  # programs of two ranks
PROGRAMS = {"002-strategies": "tutorial_002", "003-distributed-training": "tutorial_003"}


def pattern_of(text):
    """An `output` block as a regular expression; `...` is any text, blanks are any number of blanks."""
    parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in text.strip("\n").split("...")]
    return re.compile(".*".join(parts), re.S)


def number_of(option, text):
    """What code or flags say of an option, where that is one number."""
    found = re.search(rf"\.{option} = (\d+)|--trainer\.{option} (\d+)(?=\s|$)", text)
    return found and int(found[1] or found[2])


class Pages(ProgramTest):
    def test_each_block_says_what_it_is(self):
        pages = sorted(PAGES.glob("*.md"))
        self.assertEqual(len(pages), 4 + 1)
        for page in pages:
            page_blocks.blocks_of(page)

    def test_a_block_in_no_program_is_found(self):
        page = self.folder / "page.md"
        page.write_text("Text\n\n```cpp\nint x;\n```\n")
        with self.assertRaisesRegex(page_blocks.PageError, "page.md:3: a block in no program"):
            page_blocks.blocks_of(page)
        page.write_text("<!-- block: elsewhere -->\n```cpp\nint x;\n```\n")
        with self.assertRaises(page_blocks.PageError):
            page_blocks.blocks_of(page)

    def test_blocks_of_files_are_there(self):
        for page in PAGES.glob("*.md"):
            for block in page_blocks.blocks_of(page):
                if block.kind != "from":
                    continue
                with self.subTest(block.place()):
                    self.assertTrue(block.rest.startswith("examples/"), "a test builds and runs the examples")
                    self.assertIn(block.text, (SOURCE / block.rest).read_text() + "\n")

    def test_bodies_are_in_the_program(self):
        for page, program in PROGRAMS.items():
            blocks = page_blocks.blocks_of(PAGES / f"{page}.md")
            written = [name for block in blocks if block.kind == "each" for name, _, _ in page_blocks.variants(block)]
            built = self.run_program(BINARY / "bin" / program, "--list")
            self.assertEqual(sorted(built.out.split()), sorted(written), "build the programs again")
            for block in blocks:
                self.assertTrue(block.kind not in ("top", "each") or block.text.strip(), block.place())


class PageTest(ProgramTest):
    """Runs what a page has; the folder of the commands has in it what a checkout has."""

    def folder_for(self, name, blocks):
        folder = self.folder / name
        (folder / "build").mkdir(parents=True)
        for link, target in {"data": SOURCE / "data", "examples": SOURCE / "examples", "build/release": BINARY}.items():
            (folder / link).symlink_to(target)
        for block in blocks:
            if block.kind == "file":
                (folder / block.rest).write_text(block.text)
        return folder

    def run_all(self, folder, *commands, **environment):
        """Runs commands at the same time, as one result."""
        path = f"{BINARY / 'bin'}:{os.environ['PATH']}"
        started = [self.start("bash", "-euc", command, cwd=folder, PATH=path, **environment) for command in commands]
        return [self.finish(process) for process in started]

    def nodes(self, folder, count, command):
        """Runs a command once for each node of a job, as the user would on each machine."""
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} if count > 1 else {}
        return self.run_all(folder, *[f"export NODE_RANK={node}; {command}" if count > 1 else command for node in range(count)], **meeting)

    def assert_trained(self, results, text, place):
        for result in results:
            self.assertEqual(result.code, 0, f"{place}\n{text}\n{result}")
        trained = re.findall(r"trained \d+ steps on (\d+) ranks by (\w+)", "".join(result.out for result in results))
        self.assertTrue(trained or "ls::Trainer trainer" not in text and "./train" not in text, f"{place}\n{text}\n{results[0]}")
        devices, nodes = number_of("devices", text), number_of("num_nodes", text)
        if devices and trained:
            self.assertEqual(int(trained[0][0]), devices * (nodes or 1), f"{place}\n{text}\n{results[0]}")
        strategy = re.search(r'strategy(?:[ =]+"| )(ddp|fsdp|deepspeed)|ls::(Ddp|Fsdp|DeepSpeed)\b', text)
        if strategy and trained:
            self.assertEqual(trained[0][1], (strategy[1] or strategy[2]).lower(), f"{place}\n{text}\n{results[0]}")

    def assert_refused_or_trained(self, results, place):
        """What asks for GPUs: trains where there are as many, and else names what is not there."""
        for result in results:
            self.assertIn(result.code, (0, 2), f"{place}\n{result}")
            if result.code == 2:
                self.assertRegex(result.err, "gpu|cuda|CUDA", place)

    def run_body(self, program, folder, name, text, place):
        nodes = 2 if "num_nodes" in text else 1
        command = f"{BINARY / 'bin' / program} {name}"
        if "TorchElastic" in text:
            command = 'lockstep run --nnodes 2 --node-rank "$NODE_RANK" --master-port "$MASTER_PORT" --nproc-per-node 1 ' + command
        results = self.nodes(folder, nodes, command)
        if re.search(r'"(gpu|cuda)"|cuda_devices', text):
            self.assert_refused_or_trained(results, place)
        else:
            self.assert_trained(results, text, place)

    def run_commands(self, blocks, folder, group):
        """Runs a block of commands, or those that are to run together, and looks at the output that the page shows."""
        port = str(free_port())
        texts = [block.text.replace("12355", port) for block in group]
        shown = next((block for block in blocks[group[-1].number : group[-1].number + 1] if block.kind == "output"), None)
        if len(texts) > 1 or shown or "./train" not in texts[0]:
            results = self.run_all(folder, *texts)
            for result in results:
                self.assertEqual(result.code, 0, f"{group[0].place()}\n{result}")
            if shown:
                out = "".join(result.out for result in results)
                self.assertRegex(out, pattern_of(shown.text), shown.place())
            return
        for command in group[0].commands():
            with_stand_ins = page_blocks.with_stand_ins(command, page_blocks.STAND_INS_IN_COMMANDS)
            if re.search(r"accelerator (gpu|cuda)", command):
                self.assert_refused_or_trained(self.run_all(folder, command), group[0].place())
            nodes = 2 if "num_nodes" in with_stand_ins else 1
            self.assert_trained(self.nodes(folder, nodes, with_stand_ins), with_stand_ins, group[0].place())

    def run_page(self, page):
        blocks = page_blocks.blocks_of(PAGES / f"{page}.md")
        program = PROGRAMS.get(page)
        tasks = []
        for block in blocks:
            if block.kind == "each":
                for name, _, text in page_blocks.variants(block):
                    needs_gpus = re.search(r'"(gpu|cuda)"', text)
                    if not name.endswith("+") and not needs_gpus and page_blocks.with_stand_ins(text, page_blocks.STAND_INS_IN_CODE) != text:
                        continue  # many ranks for one test
                    tasks.append((self.run_body, (program, self.folder_for(name, blocks), name, text, block.place())))
            if block.kind == "shell" and block.rest != "shown":
                before = blocks[block.number - 2]
                if block.rest == "together" and before.rest == "together":
                    continue
                together = block.rest == "together"
                group = [block, blocks[block.number]] if together else [block]
                folder = self.folder_for(f"commands_{block.number}", blocks)
                if program:
                    (folder / "train").symlink_to(BINARY / "bin" / program)
                tasks.append((self.run_commands, (blocks, folder, group)))
        self.assertTrue(tasks)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            running = [pool.submit(run, *arguments) for run, arguments in tasks]
            for done in running:
                with self.subTest():
                    done.result()


class Tutorial000(PageTest):
    def test_page(self):
        self.run_page("000-environments-and-strategies")


class Tutorial001(PageTest):
    def test_page(self):
        self.run_page("001-process-groups")


class Tutorial002(PageTest):
    def test_page(self):
        self.run_page("002-strategies")


class Tutorial003(PageTest):
    def test_page(self):
        self.run_page("003-distributed-training")


if __name__ == "__main__":
    unittest.main()
