"""Whatever kinds of value and tensor Python's torch saves: each is read as torch.load reads it, or named."""
import collections
import datetime
import decimal
import enum
import functools
import pathlib
import sys
import types
import unittest
import uuid
import warnings

from harness import BINARY, DIGITS, SOURCE, ProgramTest, use_peers

use_peers("safetensors")

import numpy
import safetensors
import safetensors.torch
import torch

warnings.filterwarnings("ignore")
CASE = BINARY / "bin" / "interop_case"
LOCKSTEP = BINARY / "bin" / "lockstep"
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def numbers(dtype, shape=(3, 4)):
    """A tensor whose elements have bytes of every kind, but no NaN where the type has some."""
    count = torch.Size(shape).numel()
    if dtype.is_complex:
        return torch.complex(torch.arange(float(count)), -torch.arange(float(count))).to(dtype).view(shape)
    if dtype in FLOAT8 or dtype == torch.float4_e2m1fn_x2:
        return (torch.arange(count) % 100).to(torch.uint8).view(dtype).view(shape)
    if dtype.is_floating_point or dtype == torch.bool:
        return (torch.arange(count) - 3).to(dtype).view(shape)
    return torch.tensor([0, 1, torch.iinfo(dtype).max] * count, dtype=dtype)[:count].view(shape)


def raw(tensor):
    """Its values' bytes, whatever view it is."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if 0 in tensor.shape:
        return b""
    return bytes(torch.tensor(tensor.clone(memory_format=torch.contiguous_format).untyped_storage().tolist(), dtype=torch.uint8).numpy())


def nested(make, depth):
    value = torch.arange(3.0)
    for _ in range(depth):
        value = make(value)
    return value


class WithMetadata(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.tied = self.weight


ALIASED = torch.arange(6.0)
COMPLEX = numbers(torch.complex64)
EMPTY = torch.empty(0)

# What torch.load opens with its defaults, by name; each is a state_dict or something else with tensors in it.
READ = {
    **{f"dtype {dtype}": lambda dtype=dtype: {"w": numbers(dtype), "scalar": numbers(dtype, ()), "part": numbers(dtype)[1:, ::2]}
       for dtype in [torch.complex32, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64, torch.float4_e2m1fn_x2,
                     *FLOAT8, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool]},
    "conjugate": lambda: {"w": COMPLEX.conj(), "as it was": COMPLEX, "transposed": COMPLEX.conj().t()},
    "negative": lambda: {"w": torch.imag(COMPLEX.conj())},
    "negative complex": lambda: {"w": torch._neg_view(COMPLEX), "both": torch._neg_view(COMPLEX).conj()},
    "expanded": lambda: {"w": torch.ones(1).expand(5), "rows": torch.arange(3.0).expand(4, 3), "scalar": torch.tensor(2.0).expand(2, 2)},
    "overlapping": lambda: {"w": torch.arange(10.0).as_strided((4, 4), (2, 1)), "unfolded": torch.arange(8.0).unfold(0, 4, 1)},
    "expanded and conjugate": lambda: {"w": COMPLEX[:1].conj().expand(10**3, *COMPLEX.shape[1:])},
    "expanded and negative": lambda: {"w": COMPLEX[:1].conj().imag.expand(10**3, *COMPLEX.shape[1:])},
    "no elements of several types": lambda: {"w": EMPTY, "integers": EMPTY.view(torch.int32), "real": EMPTY.to(torch.complex64).real},
    "no elements": lambda: {"w": torch.empty(0), "rows": torch.empty(3, 0), "expanded": torch.empty(0).expand(2, 0)},
    "unicode": lambda: {"gewicht.größe": torch.ones(2), "权重": torch.zeros(3), "\U0001f525": torch.ones(1), "é/è": torch.ones(1)},
    "large integers": lambda: {"w": torch.ones(2), "seed": 2**64 - 1, "huge": 2**2000, "negative": -2**80},
    "deep lists": lambda: {"w": torch.ones(1), "deep": nested(lambda v: [v], 250)},
    "deep tuples": lambda: {"w": torch.ones(1), "deep": nested(lambda v: (v, 1), 250)},
    "deep dicts": lambda: {"w": torch.ones(1), "deep": nested(lambda v: {"a": v}, 250)},
    "a tensor": lambda: torch.arange(5.0),
    "a parameter": lambda: torch.nn.Parameter(torch.arange(5.0)),
    "a list": lambda: [torch.ones(2), torch.zeros(3)],
    "a tuple": lambda: (torch.ones(2), torch.zeros(3)),
    "parameters": lambda: {"w": torch.nn.Parameter(torch.ones(3)), "b": torch.nn.Parameter(torch.ones(2), requires_grad=False)},
    "metadata": lambda: WithMetadata().state_dict(),
    "tied": lambda: {"a": ALIASED, "b": ALIASED, "part": ALIASED[2:4], "shape": ALIASED.view(2, 3)},
    "counter": lambda: {"w": torch.ones(1), "n": collections.Counter("aab")},
    "complex number": lambda: {"w": torch.ones(1), "z": complex(1, 2)},
    "attributes": lambda: {"w": with_attribute(torch.ones(2))},
}


# Python cannot save these in the format before 1.6, which needs a class for the storage.
WITHOUT_STORAGE_TYPE = {f"dtype {dtype}" for dtype in [torch.complex32, torch.uint16, torch.uint32, torch.uint64, torch.float4_e2m1fn_x2, *FLOAT8]}


def with_attribute(tensor):
    tensor.note = "kept by Python"
    return tensor


def tensors_in(value, path=""):
    """Every tensor, by the names that lockstep gives."""
    if isinstance(value, torch.Tensor):
        return {path or "tensor": value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    found = {}
    for key, held in items:
        name = str(key).replace("~", "~0").replace("/", "~1")
        found |= tensors_in(held, f"{path}/{name}" if path else name)
    return found


class TorchFiles(ProgramTest):
    def leaves(self, *files):
        """Of each file, by their paths, the type, shape and bytes of tensors as read_torch_file() gives them."""
        pairs = [(file, file.with_suffix(".leaves")) for file in files]
        result = self.run_program(CASE, "leaves", *[path for pair in pairs for path in pair])
        self.assertEqual(result.code, 0, result)
        lines = [[line.split("\t") for line in out.read_text().splitlines()] for _, out in pairs]
        return [{path: (kind, shape, content) for path, kind, shape, content in of_file} for of_file in lines]

    def test_reads_what_torch_load_reads(self):
        files = {}
        for name, make in READ.items():
            for legacy in (False, True) if name not in WITHOUT_STORAGE_TYPE else (False,):
                file = self.folder / f"größe-{len(files)}.pt"
                torch.save(make(), file, _use_new_zipfile_serialization=not legacy)
                files[file] = (name, legacy)
        for (file, what), leaves in zip(files.items(), self.leaves(*files)):
            with self.subTest(what):
                self.check_read(what, tensors_in(torch.load(file)), leaves)

    def check_read(self, what, expected, leaves):
        got = {path: leaf for path, leaf in leaves.items() if leaf[0] != "unread"}
        self.assertEqual(sorted(got), sorted(expected), what)
        for path, tensor in expected.items():
            shape = ",".join(str(extent) for extent in tensor.shape)
            self.assertEqual(got[path], (str(tensor.dtype), shape, raw(tensor).hex()), f"{what}: {path}")

    def test_writes_what_torch_load_reads(self):
        for name in READ:
            value = READ[name]()
            if not name.startswith("dtype") and name not in ("conjugate", "negative", "expanded", "overlapping", "unicode", "tied"):
                continue
            torch.save(value, self.folder / "in.pt")
            result = self.run_program(CASE, "torch", self.folder / "in.pt", self.folder / "out.pt")
            self.assertEqual(result.code, 0, f"{name}: {result}")
            got = torch.load(self.folder / "out.pt")
            self.assertEqual(list(got), list(value), name)
            for key, tensor in value.items():
                self.assertEqual((got[key].dtype, got[key].shape, raw(got[key])), (tensor.dtype, tensor.shape, raw(tensor)), f"{name}: {key}")

    def test_names_tensors_that_are_not_dense(self):
        quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
        channels = torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8)
        rows = torch.eye(3)
        with torch.device("meta"):
            empty = torch.ones(3)
        for tensor, word in ((quantised, "a quantised tensor"), (channels, "a quantised tensor"), (rows.to_sparse(), "a sparse tensor"),
                             (rows.to_sparse_csr(), "a sparse tensor"), (rows.to_sparse_bsr((1, 1)), "a sparse tensor"),
                             (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "a nested tensor"),
                             (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged), "a nested tensor"),
                             (empty, "a meta tensor"), (torch.nn.Parameter(quantised, requires_grad=False), "a quantised tensor")):
            with self.subTest(word, layout=tensor.layout):
                file = self.folder / "odd.pt"
                torch.save({"model.odd": tensor, "fine": torch.ones(2)}, file)
                refused = self.run_program(CASE, "weights", file, self.folder / "out")
                self.assert_refused(refused, 1, "odd.pt", "entry model.odd", word)
                leaves = self.leaves(file)[0]
                self.assertEqual(leaves["fine"][0], "torch.float32")
                self.assertEqual(leaves["model.odd"][0], "unread")
                self.assertIn(word, leaves["model.odd"][2])


class Foreign(ProgramTest):
    """Checkpoints whose hyper_parameters are objects of Python, which nothing here may build."""

    def checkpoint(self):
        fake = types.ModuleType("omegaconf.dictconfig")
        sys.modules["omegaconf"], sys.modules["omegaconf.dictconfig"] = types.ModuleType("omegaconf"), fake
        fake.DictConfig = type("DictConfig", (), {"__module__": "omegaconf.dictconfig"})
        config = fake.DictConfig()
        config._content = {"lr": fake.DictConfig(), "sizes": [1, 2]}
        config._content["lr"]._parent = config  # OmegaConf's nodes know what they are in
        config._parent = None
        executed = self.folder / "executed"
        hyper_parameters = {
            "conf": config, "lr": numpy.float64(0.1), "sizes": numpy.arange(3), "seed": numpy.int64(3), "cls": torch.nn.Linear,
            "optimizer": functools.partial(torch.optim.Adam, lr=0.1), "path": pathlib.PurePosixPath("/a/b"), "windows": pathlib.PureWindowsPath("c:\\a"),
            "when": datetime.datetime(2024, 1, 1), "delta": datetime.timedelta(seconds=3), "kind": Kind.FAST, "decimal": decimal.Decimal("1.5"),
            "id": uuid.UUID(int=3), "default": collections.defaultdict(list, a=[1]), "deque": collections.deque([1, 2], maxlen=3),
            "named": Point(1, 2), "slots": Slotted(), "keyed": {Kind.FAST: 1}, "function": len, "range": range(3), "ellipsis": ...,
            "runs": Runs(executed), "list": [1, Kind.FAST, "x"], "plain": 3,
            "large": 16777217.5, "nothing": {}, "none of them": [], "no items": ()}
        weights = {"net.weight": torch.arange(6.0).view(2, 3), "net.bias": torch.ones(2, dtype=torch.complex64)}
        return {"state_dict": weights, "hyper_parameters": hyper_parameters, "epoch": 3, "global_step": 30,
                "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5), "dirpath": pathlib.PosixPath("x")}}}

    def setUp(self):
        super().setUp()
        self.file = self.folder / "foreign.ckpt"
        self.value = self.checkpoint()
        torch.save(self.value, self.file)

    def tearDown(self):
        self.assertFalse((self.folder / "executed").exists(), "something was executed")

    def test_weights_load(self):
        out = self.folder / "out.safetensors"
        result = self.run_program(CASE, "weights", self.file, out)
        self.assertEqual(result.code, 0, result)
        got = safetensors.torch.load_file(out)
        self.assertEqual({key: raw(tensor) for key, tensor in got.items()},
                         {key: raw(tensor) for key, tensor in self.value["state_dict"].items()})

    def test_protocols_and_formats(self):
        for save in ({"pickle_protocol": 4}, {"pickle_protocol": 5}, {"_use_new_zipfile_serialization": False}):
            torch.save(self.value, self.file, **save)
            self.test_weights_load()

    def test_an_expanded_conjugate_takes_the_memory_of_its_file(self):
        torch.save({"w": COMPLEX[:1].conj().expand(10**11, *COMPLEX.shape[1:]), "epoch": 3}, self.file)
        result = self.run_program(CASE, "ask", self.file, self.folder / "out", "epoch")
        self.assertEqual(result.code, 0, result)

    def test_inspect_names_what_is_not_read(self):
        result = self.run_program(LOCKSTEP, "inspect", self.file)
        self.assertEqual(result.code, 0, result)
        read, unread = result.out.split("not read")
        for line in ("state_dict/net.weight: F32 [2, 3] 24 bytes", "state_dict/net.bias: C64 [2] 16 bytes", "epoch: 3", "hyper_parameters/plain: 3",
                     "hyper_parameters/default/a/0: 1", "hyper_parameters/deque/1: 2", "hyper_parameters/path/0: \"/\"",
                     "hyper_parameters/large: 16777217.5", "hyper_parameters/nothing: {}", "hyper_parameters/none of them: []",
                     "hyper_parameters/no items: ()"):
            self.assertIn(f"  {line}\n", read)
        for line in ("conf: omegaconf.dictconfig.DictConfig(...)", "cls: torch.nn.modules.linear.Linear\n",
                     "optimizer: functools.partial(torch.optim.adam.Adam, ...)", "when: datetime.datetime(...)", f"kind: {Kind.__module__}.Kind(...)",
                     "named: ", "slots: ", "windows: pathlib.PureWindowsPath(...)", "list/1: ", "runs: posix.system(...)", "lr: numpy.", "sizes: numpy."):
            self.assertIn(f"hyper_parameters/{line}", unread)

    def test_asking_for_it_is_an_error_that_names_it(self):
        for path, what in (("hyper_parameters/conf", "omegaconf.dictconfig.DictConfig(...)"), ("hyper_parameters/keyed", "Kind(...)"),
                           ("hyper_parameters/cls", "torch.nn.modules.linear.Linear")):
            result = self.run_program(CASE, "ask", self.file, self.folder / "out", *path.split("/"))
            self.assert_refused(result, 1, f"state {path} ", what, "not read")
        result = self.run_program(CASE, "ask", self.file, self.folder / "out", "hyper_parameters", "plain")
        self.assertEqual(result.code, 0, result)

    def test_a_module_that_was_saved_whole(self):
        file = self.folder / "module.pt"
        torch.save(WithMetadata(), file)
        for verb in ("weights", "torch"):
            result = self.run_program(CASE, verb, file, self.folder / "out")
            self.assert_refused(result, 1, "module.pt", "WithMetadata(...)", "torch.save(model.state_dict(), file)")

    def test_it_is_not_written_in_silence(self):
        result = self.run_program(CASE, "torch", self.file, self.folder / "out")
        self.assert_refused(result, 1, "hyper_parameters/", "cannot be written")
        self.assertFalse((self.folder / "out").exists())


class Kind(enum.Enum):
    FAST = 1


Point = collections.namedtuple("Point", "x y")


class Slotted:
    __slots__ = ("a",)

    def __init__(self):
        self.a = 3


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os
        return os.system, (f"touch {self.path}",)


class Safetensors(ProgramTest):
    """Element types, in both directions."""

    def test_every_type_of_the_format(self):
        types_ = [torch.complex64, torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
                  torch.float8_e8m0fnu, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
                  torch.bool, torch.float4_e2m1fn_x2]
        tensors = {str(dtype): numbers(dtype) for dtype in types_}
        source, out = self.folder / "in.safetensors", self.folder / "out.safetensors"
        safetensors.torch.save_file(tensors, source)
        result = self.run_program(CASE, "weights", source, out)
        self.assertEqual(result.code, 0, result)
        got = safetensors.torch.load_file(out)
        self.assertEqual(sorted(got), sorted(tensors))
        for name, tensor in tensors.items():
            self.assertEqual((got[name].dtype, got[name].shape, raw(got[name])), (tensor.dtype, tensor.shape, raw(tensor)), name)

    def test_others_are_refused_by_their_name(self):
        for dtype in (torch.complex32, torch.complex128, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
            torch.save({"odd": numbers(dtype)}, self.folder / "in.pt")
            result = self.run_program(CASE, "weights", self.folder / "in.pt", self.folder / "out")
            self.assert_refused(result, 1, "'odd'", str(dtype).removeprefix("torch."))
        for dtype in ("F6_E2M3", "F6_E3M2"):
            header = f'{{"odd":{{"dtype":"{dtype}","shape":[4],"data_offsets":[0,3]}}}}'.encode()
            (self.folder / "in.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"abc")
            result = self.run_program(CASE, "weights", self.folder / "in.safetensors", self.folder / "out")
            self.assert_refused(result, 1, "'odd'", dtype, "LibTorch has not")


class LastWeights(ProgramTest):
    """What --save_weights writes follows from the name."""

    def weights(self, name):
        result = self.run_program(DIGITS, "fit", "--data.file", SOURCE / "data" / "digits.csv.gz", "--run_dir", self.folder / f"run of {name}",
                                  "--seed_everything", 3, "--trainer.max_steps", 2, "--save_weights", self.folder / name)
        self.assertEqual(result.code, 0, result)
        return self.folder / name

    def test_a_name_of_torch_save_gives_a_state_dict(self):
        expected = safetensors.torch.load_file(self.weights("w.safetensors"))
        for name in ("w.pt", "w.pth", "pytorch_model.bin"):
            with self.subTest(name):
                got = torch.load(self.weights(name), weights_only=True)
                self.assertEqual(sorted(got), sorted(expected))
                for key, tensor in expected.items():
                    self.assertTrue(torch.equal(got[key], tensor), key)
        self.assertEqual(sorted(safetensors.torch.load_file(self.weights("weights"))), sorted(expected))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
