"""What loggers write, read with the real packages: tensorboard, mlflow, PyYAML."""
import csv
import json
import math
import os
import signal
import struct
import sys
import unittest

from harness import BINARY, ProgramTest, use_peers

use_peers("tensorboard")

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

import yaml
from mlflow import MlflowClient
from mlflow.entities import ViewType
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.util import tensor_util

PARAMS = {"optimizer": {"lr": 1e-5, "name": "adamw"}, "layers": 3, "width": 64.0, "amp": True,
          "note": 'yes: "h\u00e9"\n', "clip": math.inf}


class LoggersTest(ProgramTest):
    def case(self, kind, code=0):
        result = self.run_program(BINARY / "bin" / "logger_case", kind, self.folder / "out")
        self.assertEqual(result.code, code, result)
        return self.folder / "out"

    def assert_params(self, file):
        params = yaml.full_load(file.read_text())
        self.assertEqual(params, PARAMS)
        self.assertIs(type(params["width"]), float)


class TensorBoard(LoggersTest):
    def read(self, folder):
        events = EventAccumulator(str(folder))
        events.Reload()
        return events

    def scalars(self, events, tag):
        return [(event.step, event.value) for event in events.Scalars(tag)]

    def sessions(self, events):
        contents = events.PluginTagToContent("hparams")
        return {tag: HParamsPluginData.FromString(content) for tag, content in contents.items()}

    def test_scalars(self):
        out = self.case("tensorboard")
        events = self.read(out / "lightning_logs" / "version_0")
        self.assertEqual(events.file_version, 2.0)
        self.assertEqual(set(events.Tags()["scalars"]), {"hp_metric", "train/loss", "lr", "epoch"})
        self.assertEqual(set(events.PluginTagToContent("scalars")), {"hp_metric", "train/loss", "lr", "epoch"})
        self.assertEqual(self.scalars(events, "hp_metric"), [(0, -1.0)])
        self.assertEqual(self.scalars(events, "epoch"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
        for step, (at, value) in enumerate(self.scalars(events, "train/loss")):
            self.assertEqual(at, step)
            self.assertAlmostEqual(value, 1 / (1 + step), places=7)
        times = [event.wall_time for event in events.Scalars("lr")]
        self.assertEqual(times, sorted(times))

    def test_scalars_as_the_scalars_page_reads_them(self):
        events = PluginEventAccumulator(str(self.case("tensorboard") / "lightning_logs" / "version_0"))
        events.Reload()
        self.assertEqual(events.SummaryMetadata("train/loss").plugin_data.plugin_name, "scalars")
        values = [tensor_util.make_ndarray(event.tensor_proto).item() for event in events.Tensors("train/loss")]
        self.assertEqual(values[:2], [1.0, 0.5])

    def test_hyper_parameters(self):
        out = self.case("tensorboard")
        self.assert_params(out / "lightning_logs" / "version_0" / "hparams.yaml")
        sessions = self.sessions(self.read(out / "lightning_logs" / "version_0"))
        start = sessions["_hparams_/session_start_info"].session_start_info
        self.assertGreater(start.start_time_secs, 1e9)
        self.assertEqual(start.hparams["optimizer/lr"].number_value, 1e-5)
        self.assertEqual(start.hparams["optimizer/name"].string_value, "adamw")
        self.assertEqual(start.hparams["amp"].WhichOneof("kind"), "bool_value")
        experiment = sessions["_hparams_/experiment"].experiment
        self.assertEqual([column.name.tag for column in experiment.metric_infos], ["hp_metric"])
        self.assertEqual({info.name for info in experiment.hparam_infos}, set(start.hparams))
        self.assertEqual(sessions["_hparams_/session_end_info"].session_end_info.status, 1)

    def test_a_failed_run_with_columns_and_prefix(self):
        events = self.read(self.case("tensorboard") / "lightning_logs" / "version_1")
        self.assertEqual(set(events.Tags()["scalars"]), {"big-best", "big-train/loss", "big-lr", "big-epoch"})
        self.assertEqual(self.scalars(events, "big-best"), [(0, 0.25)])
        self.assertEqual(self.sessions(events)["_hparams_/session_end_info"].session_end_info.status, 2)

    def test_strange_values(self):
        events = self.read(self.case("tensorboard") / "mine" / "inner")
        ((step, value),) = self.scalars(events, "h\u00e9 \u4e16")
        self.assertEqual(step, 2**40)
        self.assertTrue(math.isnan(value))
        self.assertEqual(self.scalars(events, "bad \ufffd"), [(2**40, 2.0)])

    def test_a_killed_run(self):
        events = self.read(self.case("killed", -signal.SIGKILL) / "lightning_logs" / "version_0")
        self.assertEqual([step for step, _ in self.scalars(events, "train/loss")], list(range(10)))


class Jsonl(LoggersTest):
    def test_rows(self):
        def refuse(constant):
            self.fail(f"{constant} is no JSON")
        out = self.case("jsonl")
        rows = [json.loads(line, parse_constant=refuse) for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(rows[0], {"epoch": 0, "step": 0, "train/loss": 1.0, "lr": 0.5})
        self.assertEqual(rows[2]["train/loss"], 1 / 3)
        self.assertEqual(rows[3], {"epoch": 1, "step": 3, 'a "b"': "NaN", "up": "Infinity", "down": "-Infinity"})
        self.assertEqual(float(rows[3]["down"]), -math.inf)
        self.assert_params(out / "hparams.yaml")


class Mlflow(LoggersTest):
    def setUp(self):
        super().setUp()
        self.client = MlflowClient(f"file://{self.case('mlflow')}")
        self.experiment = self.client.get_experiment_by_name('h\u00e9: "x"')
        runs = self.client.search_runs([self.experiment.experiment_id], run_view_type=ViewType.ALL)
        self.runs = {run.info.run_name: run for run in runs}

    def test_lists_experiments_and_runs(self):
        names = {experiment.name for experiment in self.client.search_experiments()}
        self.assertEqual(names, {"Default", 'h\u00e9: "x"'})
        self.assertEqual(len(self.runs), 2)
        run = self.runs["first"]
        self.assertEqual(run.info.status, "RUNNING")  # it was gone on with
        self.assertEqual(run.data.params, {"optimizer/lr": "1e-05", "optimizer/name": "adamw", "layers": "3", "width": "64.0",
                                           "amp": "True", "note": 'yes: "h\u00e9"\n', "clip": "inf"})
        self.assertEqual(run.data.tags["team"], "vision")
        history = self.client.get_metric_history(run.info.run_id, "train/loss")
        self.assertEqual([(metric.step, metric.value) for metric in history],
                         [(step, 1 / (1 + step)) for step in range(5)] + [(9, 1e-20)])

    def test_a_failed_run(self):
        (run,) = [run for name, run in self.runs.items() if name != "first"]
        self.assertEqual(run.info.status, "FAILED")
        self.assertGreaterEqual(run.info.end_time, run.info.start_time)
        self.assertEqual(set(run.data.metrics), {"big-epoch", "big-nan", "big-../outside"})
        self.assertTrue(math.isnan(run.data.metrics["big-nan"]))

    def test_python_goes_on_in_the_store(self):
        run = self.client.create_run(self.experiment.experiment_id, run_name="python")
        self.client.log_metric(run.info.run_id, "train/loss", 0.5)
        first = self.runs["first"].info.run_id
        self.client.log_metric(first, "train/loss", 0.25, step=10)
        self.client.set_terminated(first)
        self.assertEqual(self.client.get_run(first).data.metrics["train/loss"], 0.25)
        self.assertEqual(self.client.get_run(first).info.status, "FINISHED")


# Names as bytes, each with a value; two that are the same text are the same metric.
HOSTILE = [
    (b"a,b", math.nan), (b'say "hi"', math.inf), (b"two\nlines", -math.inf), (b"carriage\rreturn", -0.0), (b"nul\0inside", 5e-324),
    (b"bad \xff bytes", 1e308), (b"x" * 3000, 1 / 3), ("h\u00e9 \u4e16 \U0001f600".encode(), 1e22), (b" spaces ", 7), (b"", 8), (b"=1+1", 9),
    (b"a", 10), (b"a/b", 11), (b"../x", 12), (b"-", 13), (b"#", 14), (b"\t", 15), (b"a:b", 16), (b"ab", 17), (b"'", 18), (b": ", 19),
    ("\u2028\u0085\ufeff".encode(), 20), (b"epoch_", 21), (b"null", 22), (b"{}", 23)]


class Hostile(LoggersTest):
    """Every logger, read back with its own reader."""

    def setUp(self):
        super().setUp()
        lines = [f"{name.hex()} {value!r}\n" for name, value in HOSTILE]
        (self.folder / "out.rows").write_text("".join(lines))
        self.out = self.case("hostile")
        self.names = [name.decode(errors="replace") for name, _ in HOSTILE]

    def assert_values(self, read, single=False):
        for name, (_, value) in zip(self.names, HOSTILE):
            expected = struct.unpack("f", struct.pack("f", min(value, 3e38)))[0] if single and math.isfinite(value) else value
            with self.subTest(name[:20]):
                got = read(name)
                self.assertTrue(got == expected or (math.isnan(got) and math.isnan(expected)) or (single and value > 3e38), got)

    def assert_params(self, file):
        params = yaml.full_load(file.read_text())
        flat = {}
        def visit(node, path):
            for key, value in node.items():
                visit(value, path + key + "/") if isinstance(value, dict) else flat.__setitem__(path + key, value)
        visit(params, "")
        self.assertEqual(flat, {name: name for name in self.names})

    def test_csv(self):
        with open(self.out / "csv" / "metrics.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
        self.assertEqual(set(rows[0]), {"epoch", "step", *self.names})
        self.assertEqual([row["step"] for row in rows], [*map(str, range(len(HOSTILE))), "1000"])
        self.assert_values(lambda name: float(rows[-1][name]))
        for row, name in zip(rows, self.names):
            self.assertEqual([key for key, value in row.items() if value != "" and key not in ("epoch", "step")], [name])
        self.assert_params(self.out / "csv" / "hparams.yaml")

    def test_jsonl(self):
        rows = [json.loads(line) for line in (self.out / "jsonl" / "metrics.jsonl").read_text().split("\n")[:-1]]
        self.assertEqual(len(rows), len(HOSTILE) + 1)
        self.assert_values(lambda name: float(rows[-1][name]))
        self.assert_params(self.out / "jsonl" / "hparams.yaml")

    def test_tensorboard(self):
        events = EventAccumulator(str(self.out / "tensorboard"))
        events.Reload()
        self.assertEqual(set(events.Tags()["scalars"]), {"hp_metric", "epoch", *self.names})
        self.assert_values(lambda name: events.Scalars(name)[-1].value, single=True)
        self.assert_params(self.out / "tensorboard" / "hparams.yaml")

    def test_mlflow(self):
        client = MlflowClient(f"file://{self.out / 'mlflow'}")
        (experiment,) = [found for found in client.search_experiments() if found.name != "Default"]
        (run,) = client.search_runs([experiment.experiment_id])
        self.assertEqual(len(run.data.metrics), len(HOSTILE) + 1)  # each under a name of its own, and epoch
        self.assertEqual(sorted(run.data.params.values()), sorted(self.names))
        self.assertEqual(sorted(run.data.params.values()), sorted(self.names))
        for name, key in {"a,b": "ab", "a:b": "ab-2", "ab": "ab-3", "a/b": "a_b", "a": "a", " spaces ": " spaces "}.items():
            (value,) = [value for known, (_, value) in zip(self.names, HOSTILE) if known == name]
            got = run.data.metrics[key]
            self.assertTrue(got == value or (math.isnan(got) and math.isnan(value)), (name, got))

    def test_names_of_columns(self):
        lines = [b"epoch", b"step", b"loss"]
        (self.folder / "out.rows").write_text("".join(f"{name.hex()} {value}\n" for name, value in zip(lines, (7, 70, 0.5))))
        out = self.case("hostile")
        text = (out / "csv" / "metrics.csv").read_text().splitlines()
        self.assertEqual((text[0], text[-1]), ("epoch,step,loss", "7,70,0.5"))
        last = json.loads((out / "jsonl" / "metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(last, {"epoch": 7, "step": 70, "loss": 0.5})
        events = EventAccumulator(str(out / "tensorboard"))
        events.Reload()
        self.assertEqual({(event.step, event.value) for event in events.Scalars("epoch")} & {(70, 7)}, {(70, 7)})


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
