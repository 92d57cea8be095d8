"""Checkpoint files go from Python to C++ and back, with the real packages."""
import dataclasses
import json
import logging
import pickle
import sys
import unittest
import warnings
import zipfile

from harness import BINARY, PEERS_PYTHON, SOURCE, ProgramTest, use_peers

use_peers("lightning")

import lightning
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import MetadataIndex

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def plain(value):
    """`value` as lockstep gives it back: no None, lists for tuples, text for the names of types."""
    if isinstance(value, dict):
        return {key: plain(held) for key, held in value.items() if held is not None}
    if isinstance(value, (list, tuple, set)):
        return [{} if item is None else plain(item) for item in value]
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    return bytes(value) if isinstance(value, bytearray) else value


class InteropTest(ProgramTest):
    def case(self, kind, source, *more):
        out = self.folder / f"{kind}.out"
        result = self.run_program(BINARY / "bin" / "interop_case", kind, source, out, *more)
        self.assertEqual(result.code, 0, result)
        return out

    def assert_refused_by_name(self, source, *words):
        result = self.run_program(BINARY / "bin" / "interop_case", "torch", source, self.folder / "out")
        self.assert_refused(result, 1, *words)
        self.assertFalse((self.folder / "out").exists())

    def assert_same(self, got, expected, path="root"):
        if isinstance(expected, torch.Tensor):
            self.assertEqual(got.dtype, expected.dtype, path)
            self.assertEqual(got.shape, expected.shape, path)
            same = [tensor.detach().contiguous().flatten().view(torch.uint8).tolist() for tensor in (got, expected)]
            self.assertEqual(*same, path)
        elif isinstance(expected, dict):
            self.assertEqual(list(got), list(expected), path)
            for key in expected:
                self.assert_same(got[key], expected[key], f"{path}/{key}")
        elif isinstance(expected, list):
            self.assertEqual(len(got), len(expected), path)
            for i, item in enumerate(expected):
                self.assert_same(got[i], item, f"{path}/{i}")
        else:
            self.assertEqual((type(got), got), (type(expected), expected), path)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def trained(make_optimizer):
    model = network()
    optimizer = make_optimizer(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


class TorchFiles(InteropTest):
    def assert_goes_both_ways(self, value, expected=None, **save):
        torch.save(value, self.folder / "in.pt", **save)
        got = torch.load(self.case("torch", self.folder / "in.pt"))  # weights_only=True
        self.assert_same(got, plain(value) if expected is None else expected)
        return got

    def test_state_dict_of_a_module(self):
        model = network()
        got = self.assert_goes_both_ways(model.state_dict())
        network().load_state_dict(got)

    def test_state_dict_of_optimizers(self):
        for make in (torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
            model, optimizer = trained(make)
            got = self.assert_goes_both_ways(optimizer.state_dict())
            other = make(model.parameters())
            other.load_state_dict(got)
            self.assert_same(plain(other.state_dict()["state"]), plain(optimizer.state_dict()["state"]))

    def test_every_element_type(self):
        types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
                 torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
                 torch.bool]
        self.assert_goes_both_ways({str(t): torch.tensor([[0, 1, 1], [1, 0, 1]]).to(t) for t in types})

    def test_tensors_of_every_layout(self):
        base = torch.arange(24.0)
        self.assert_goes_both_ways({
            "transposed": base.view(4, 6).t(), "part": base[3:7], "strided": base[::5], "number": torch.tensor(3.5),
            "empty": torch.empty(0, 3), "four dimensions": base.view(1, 2, 3, 4).permute(3, 1, 0, 2), "end": base[20:]})

    def test_tied_weights_stay_tied(self):
        weight = torch.randn(2, 2)
        got = self.assert_goes_both_ways({"a": weight, "b": weight})
        self.assertEqual(got["a"].data_ptr(), got["b"].data_ptr())

    def test_numbers_of_64_bits_in_the_archive(self):
        torch.save({"w": torch.arange(6.0)}, self.folder / "in.pt")
        out = self.case("zip64", self.folder / "in.pt")
        self.assert_same(torch.load(out), {"w": torch.arange(6.0)})
        self.assert_same(torch.load(out, mmap=True), {"w": torch.arange(6.0)})
        self.assert_same(torch.load(self.case("torch", out)), {"w": torch.arange(6.0)})

    def test_plain_values(self):
        self.assert_goes_both_ways({
            "none": None, "true": True, "int": -3, "large": 2**40, "least": -2**63, "float": 1e-300, "inf": float("inf"),
            "text": "h\u00e9 \u4e16", "bytes": b"\0\xffx", "no bytes": b"", "bytearray": bytearray(b"ab"), "tuple": (1, (2.5, None)),
            "list": [], "dict": {}, "set": {3}, "dtype": torch.bfloat16, "device": torch.device("cuda:1"),
            "size": torch.Size([2, 3]), "parameter": torch.nn.Parameter(torch.ones(2)), "deep": {"a": [{"b": (torch.ones(1),)}]}})

    def test_integer_keys_become_text(self):
        self.assert_goes_both_ways({"by number": {0: "a", -7: "b"}}, {"by number": {"0": "a", "-7": "b"}})

    def test_later_protocols(self):
        value = {"w": torch.ones(3), "model": network().state_dict(), "bytes": b"ab"}
        for protocol in (2, 3, 4, 5):
            self.assert_goes_both_ways(value, pickle_protocol=protocol)

    def test_files_of_before_1_6(self):
        value = {"model": network().state_dict(), "step": 3, "half": torch.ones(3).half(), "empty": torch.empty(0),
                 "tied": [torch.ones(2)] * 2, "part": torch.arange(24.0).view(4, 6).t()[1:]}
        self.assert_goes_both_ways(value, _use_new_zipfile_serialization=False)
        whole = (self.folder / "in.pt").read_bytes()
        for size in (15, 40, 200, len(whole) - 1):
            (self.folder / "cut.pt").write_bytes(whole[:size])
            self.assert_refused_by_name(self.folder / "cut.pt", "cut.pt")

    def test_archives_that_other_programs_packed(self):
        value = {"w": torch.arange(6.0), "h\u00e9 \u4e16": torch.ones(2)}
        torch.save(value, self.folder / "in.pt")
        plain_archive = (self.folder / "in.pt").read_bytes()
        (self.folder / "longer.pt").write_bytes(plain_archive + b"\0" * 100)
        with zipfile.ZipFile(self.folder / "in.pt") as old, \
                zipfile.ZipFile(self.folder / "deflated.pt", "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
        torch.serialization.set_crc32_options(False)
        torch.save(value, self.folder / "unchecked.pt")
        torch.serialization.set_crc32_options(True)
        for name in ("longer.pt", "deflated.pt", "unchecked.pt"):
            self.assert_same(torch.load(self.case("torch", self.folder / name)), value, name)

    def test_other_formats_are_refused_by_name(self):
        torch.jit.save(torch.jit.script(network()), self.folder / "script.pt")
        self.assert_refused_by_name(self.folder / "script.pt", "TorchScript")
        torch.save({"a": torch.zeros(1000)}, self.folder / "damaged.pt")
        damaged = bytearray((self.folder / "damaged.pt").read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (self.folder / "damaged.pt").write_bytes(damaged)
        self.assert_refused_by_name(self.folder / "damaged.pt", "data/0' is damaged")


class Net(lightning.LightningModule):
    def __init__(self, lr=0.1, sizes=(3, 1), extra=None):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(*sizes)

    def training_step(self, batch, index):
        loss = self.net(batch[0]).pow(2).sum()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class LightningFiles(InteropTest):
    def trainer(self, epochs):
        return lightning.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
                                 enable_model_summary=False, enable_checkpointing=False, default_root_dir=self.folder)

    def batches(self):
        data = torch.utils.data.TensorDataset(torch.arange(24.0).view(8, 3))
        return torch.utils.data.DataLoader(data, batch_size=4)

    def checkpoint(self):
        torch.manual_seed(0)
        trainer = self.trainer(2)
        trainer.fit(Net(extra={"a": [1, 2.5, None]}), self.batches())
        trainer.save_checkpoint(self.folder / "in.ckpt")
        return torch.load(self.folder / "in.ckpt")

    def resumed(self, file):
        model, trainer = Net(), self.trainer(3)
        trainer.fit(model, self.batches(), ckpt_path=file)
        self.assertEqual((trainer.current_epoch, trainer.global_step), (3, 6))
        return model.state_dict()

    def test_checkpoint_of_a_run(self):
        expected = self.checkpoint()
        out = self.case("lightning", self.folder / "in.ckpt")
        self.assert_same(torch.load(out), plain(expected))
        self.assert_same(dict(Net.load_from_checkpoint(out).state_dict()), dict(expected["state_dict"]))
        self.assert_same(dict(self.resumed(out)), dict(self.resumed(self.folder / "in.ckpt")))

    def test_checkpoint_with_the_least(self):
        checkpoint = self.checkpoint()
        least = {key: checkpoint[key] for key in ("state_dict", "epoch", "global_step", "optimizer_states", "lr_schedulers")}
        torch.save(least, self.folder / "least.pt")
        out = self.case("lightning", self.folder / "least.pt")
        self.assert_same(dict(Net.load_from_checkpoint(out).state_dict()), dict(checkpoint["state_dict"]))
        self.assert_same(dict(self.resumed(out)), dict(self.resumed(self.folder / "in.ckpt")))

    def test_milestones_of_a_schedule(self):
        model = Net()
        schedule = torch.optim.lr_scheduler.MultiStepLR(torch.optim.SGD(model.parameters(), lr=1), [2, 4])
        other = {"milestones": {"1": "alpha"}}
        torch.save({"state_dict": model.state_dict(), "lr_schedulers": [schedule.state_dict()], "other": other}, self.folder / "in.pt")
        out = torch.load(self.case("lightning", self.folder / "in.pt"))
        self.assertEqual((out["lr_schedulers"][0]["milestones"], out["other"]), ({2: 1, 4: 1}, other))

    def test_stored_checkpoint(self):
        file = SOURCE / "tests" / "formats" / "lightning.ckpt"
        self.assert_same(torch.load(self.case("torch", file)), plain(torch.load(file, weights_only=False)))

    def test_needs_a_state_dict(self):
        torch.save({"epoch": 1}, self.folder / "none.pt")
        result = self.run_program(BINARY / "bin" / "interop_case", "lightning", self.folder / "none.pt", self.folder / "out")
        self.assert_refused(result, 1, "state_dict")


class Weights(InteropTest):
    def assert_weights(self, source, expected):
        got = safetensors.torch.load_file(self.case("weights", source))
        self.assert_same(dict(sorted(got.items())), dict(sorted(expected.items())))

    def test_of_every_file(self):
        expected = network().state_dict()
        safetensors.torch.save_file(expected, self.folder / "model.safetensors")
        torch.save(expected, self.folder / "weights.pth")
        torch.save({"model_state_dict": expected, "epoch": 3, "rate": 0.5}, self.folder / "tutorial.pt")
        torch.save({"state_dict": expected, "epoch": 3}, self.folder / "lightning.ckpt")
        for name in ("model.safetensors", "weights.pth", "tutorial.pt", "lightning.ckpt", "."):
            self.assert_weights(self.folder / name, expected)

    def test_what_is_no_tensor_is_named(self):
        torch.save({"weight": torch.ones(1), "epoch": 3}, self.folder / "mixed.pt")
        result = self.run_program(BINARY / "bin" / "interop_case", "weights", self.folder / "mixed.pt", self.folder / "out")
        self.assert_refused(result, 1, "mixed.pt", "entry epoch", "int")


class HuggingFace(InteropTest):
    def save_sharded(self):
        tensors = {"transformer.h.0.attn.weight": torch.arange(6.0).view(2, 3), "transformer.h.1.attn.weight": torch.ones(2, 3),
                   "transformer.wte.weight": torch.ones(4, 2, dtype=torch.bfloat16), "lm_head.weight": torch.zeros(1)}
        names = list(tensors)
        files = {"model-00001-of-00002.safetensors": names[:2], "model-00002-of-00002.safetensors": names[2:]}
        for file, held in files.items():
            safetensors.torch.save_file({name: tensors[name] for name in held}, self.folder / file, metadata={"format": "pt"})
        self.write_index({name: file for file, held in files.items() for name in held})
        return tensors

    def write_index(self, weight_map):
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))

    def test_sharded_folder(self):
        tensors = self.save_sharded()
        got = safetensors.torch.load_file(self.case("huggingface", self.folder))
        self.assert_same(dict(sorted(got.items())), dict(sorted(tensors.items())))

    def test_names_and_transposes(self):
        tensors = self.save_sharded()
        got = safetensors.torch.load_file(self.case("huggingface", self.folder, r"transformer\.h\.(\d+)\.attn\.(.*)",
                                                    "layers.$1.attention.$2", "transpose", r"lm_head\..*", "", "keep"))
        expected = {"layers.0.attention.weight": tensors["transformer.h.0.attn.weight"].t(),
                    "layers.1.attention.weight": torch.ones(3, 2), "transformer.wte.weight": tensors["transformer.wte.weight"]}
        self.assert_same(dict(sorted(got.items())), expected)

    def test_bad_indices_and_tables(self):
        self.save_sharded()

        def refused(code, rename, *words):
            result = self.run_program(BINARY / "bin" / "interop_case", "huggingface", self.folder, self.folder / "out", *rename)
            self.assert_refused(result, code, *words)

        refused(1, ("(", "x", "keep"), "regular expression")
        refused(1, (".*", "x", "keep"), "same name", "'x'")
        refused(1, (r"lm_head\.weight", "head", "transpose"), "lm_head.weight", "1 dimensions")
        for file in ("../model.safetensors", "/etc/passwd", "sub/x.safetensors", 3, "x.bin"):
            self.write_index({"a": file})
            refused(1, (), "index.json", "no file beside it")
        self.write_index({"absent": "model-00001-of-00002.safetensors"})
        refused(1, (), "absent", "model-00001-of-00002.safetensors")


class Distributed(InteropTest):
    def test_checkpoint_of_one_process(self):
        model, optimizer = trained(torch.optim.AdamW)
        state = {"model": model.state_dict(), "optim": optimizer.state_dict()["state"], "epoch": 3, "name": "x",
                 "list": [1.5, torch.ones(2)], "half": torch.ones(3, dtype=torch.bfloat16), "number": torch.tensor(2)}
        dcp.save(state, checkpoint_id=self.folder / "dcp")
        got = torch.load(self.case("distributed", self.folder / "dcp"))
        expected = plain(state) | {"list": {"0": 1.5, "1": torch.ones(2)}}
        expected["optim"] = {str(key): held for key, held in expected["optim"].items()}
        self.assertEqual(sorted(got), sorted(expected))
        for name in expected:
            self.assert_same(self.in_order(got[name]), self.in_order(expected[name]), name)

    def in_order(self, value):
        return {key: self.in_order(value[key]) for key in sorted(value)} if isinstance(value, dict) else value

    def test_checkpoint_of_two_ranks(self):
        ranks = [self.start(PEERS_PYTHON, "-c", TWO_RANKS, self.folder, RANK=str(rank)) for rank in range(2)]
        for result in [self.finish(rank) for rank in ranks]:
            self.assertEqual(result.code, 0, result)
        got = torch.load(self.case("distributed", self.folder / "dcp"))
        self.assert_same(got, {"w": torch.arange(15.0).view(5, 3), "both": torch.ones(2)})

    def test_pieces_that_overlap_are_refused(self):
        dcp.save({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 4.0])}, checkpoint_id=self.folder / "dcp")
        metadata_file = self.folder / "dcp" / ".metadata"
        metadata = pickle.loads(metadata_file.read_bytes())
        kind = dataclasses.replace(metadata.state_dict_metadata["a"], size=torch.Size([4]))
        places = list(metadata.storage_data.values())
        for second, code in ((2, 0), (1, 1)):
            indices = [MetadataIndex("w", torch.Size([offset])) for offset in (0, second)]
            metadata_file.write_bytes(pickle.dumps(dataclasses.replace(
                metadata, state_dict_metadata={"w": kind}, storage_data=dict(zip(indices, places)), planner_data=None)))
            result = self.run_program(BINARY / "bin" / "interop_case", "distributed", self.folder / "dcp", self.folder / "out")
            self.assertEqual(result.code, code, result)
        self.assertIn("overlap", result.err)

    def test_names_of_files_are_no_paths(self):
        dcp.save({"w": torch.ones(2)}, checkpoint_id=self.folder / "dcp")
        metadata = self.folder / "dcp" / ".metadata"
        metadata.write_bytes(metadata.read_bytes().replace(b"__0_0.distcp", b"../00.distcp"))
        result = self.run_program(BINARY / "bin" / "interop_case", "distributed", self.folder / "dcp", self.folder / "out")
        self.assert_refused(result, 1, ".metadata", "../00.distcp")


TWO_RANKS = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, distribute_tensor
folder = sys.argv[1]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=int(os.environ["RANK"]), world_size=2)
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
dcp.save({"w": distribute_tensor(torch.arange(15.0).view(5, 3), mesh, [Shard(0)]), "both": torch.ones(2)}, checkpoint_id=f"{folder}/dcp")
dist.destroy_process_group()
os._exit(0)  # everything is on disk; PyTorch 2.13 may abort when the interpreter takes its threads down
"""

if __name__ == "__main__":
    unittest.main(argv=sys.argv)
