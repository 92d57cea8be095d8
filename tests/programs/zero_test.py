"""Checkpoints of DeepSpeed, and by DeepSpeed's names, on real ranks: what one run saves, another one goes on from."""
import contextlib
import json
import shutil
import sys
import types
import unittest
import unittest.mock

from harness import BINARY, SOURCE, ProgramTest, data_limit, use_peers

use_peers("safetensors")

import safetensors.numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

CASE = BINARY / "bin" / "zero_case"
COMMAND = BINARY / "bin" / "lockstep"
RESUME = BINARY / "bin" / "resume_case"
FOLDERS = SOURCE / "tests" / "formats" / "deepspeed"
OWN = "group rest: 0.01, 0.8 0.9\nclient state:\n"  # of zero_case's optimizer, and of what it saves
# What DeepSpeed saves beside the model and the optimizer, and what make_folders.py does.
CLIENT_STATE = ("lr_scheduler skipped_steps global_samples dp_world_size mp_world_size checkpoint_parallel_dimensions "
                "ds_version epoch note")
STAGE_3 = ("--fabric.strategy", "deepspeed_stage_3")


@contextlib.contextmanager
def stand_ins_of_deepspeed():
    """Fakes of the classes that DeepSpeed's pickles name; gives that of its loss scaler of float16."""
    class Record:
        def __init__(self, **attributes):
            self.__dict__.update(attributes)

    made = {}
    for name, base in (("runtime.fp16.loss_scaler.LossScaler", Record), ("runtime.fp16.loss_scaler.DynamicLossScaler", Record),
                       ("runtime.zero.config.ZeroStageEnum", int), ("utils.tensor_fragment.fragment_address", Record)):
        module, _, name = f"deepspeed.{name}".rpartition(".")
        for end in range(module.count(".") + 1):
            package = ".".join(module.split(".")[:end + 1])
            made.setdefault(package, types.ModuleType(package))
        setattr(made[module], name, type(name, (base,), {"__module__": module}))
    with unittest.mock.patch.dict(sys.modules, made):
        yield made["deepspeed.runtime.fp16.loss_scaler"].DynamicLossScaler


class ZeroTest(ProgramTest):
    def case(self, verb, folder, ranks, *flags):
        out = [] if verb == "save" else ["--case.out", self.folder / "out.ckpt"]
        return self.run_program(CASE, verb, "--case.dir", folder, "--fabric.devices", ranks, *out, *flags)

    def tensors(self, checkpoint, entry="model"):
        file = self.folder / "entry.safetensors"
        result = self.run_program(COMMAND, "consolidate", checkpoint, file, "--entry", entry)
        self.assertEqual(result.code, 0, result)
        return safetensors.numpy.load_file(file)

    def assert_same(self, got, expected):
        self.assertEqual(sorted(got), sorted(expected))
        for name, value in expected.items():
            self.assertEqual((got[name].dtype, got[name].shape), (value.dtype, value.shape), name)
            self.assertEqual(got[name].tobytes(), value.tobytes(), name)


class ByDeepSpeedsNames(ZeroTest):
    def test_from_two_ranks_to_three(self):
        saved = self.case("save", self.folder / "run", 2, *STAGE_3)
        self.assertEqual((saved.code, saved.out), (0, "saved global_step3\n"), saved)
        self.assertEqual((self.folder / "run" / "latest").read_text(), "global_step3")
        self.assertEqual(sorted(p.name for p in (self.folder / "run").iterdir()), ["global_step3", "latest"])
        loaded = self.case("load", self.folder / "run", 3, *STAGE_3)
        self.assertEqual((loaded.code, loaded.out), (0, f"loaded global_step3\nglobal_steps 3\nlr 0.500000\n{OWN}"), loaded)
        for entry in ("model", "optimizer"):
            self.assert_same(self.tensors(self.folder / "out.ckpt", entry), self.tensors(self.folder / "run", entry))
        file = self.folder / "fp32.safetensors"
        self.assertEqual(self.run_program(COMMAND, "zero-to-fp32", self.folder / "run", file).code, 0)
        self.assert_same(safetensors.numpy.load_file(file), self.tensors(self.folder / "run"))
        refused = self.run_program(COMMAND, "zero-to-fp32", self.folder / "run", file, "--exclude_frozen_parameters")
        self.assert_refused(refused, 2, "exclude_frozen_parameters", "does not say which parameters are frozen")
        only = self.case("load", self.folder / "run", 2, "--case.module_only", "true")
        self.assertEqual((only.code, only.out), (0, f"loaded global_step3\nglobal_steps -1\nlr 0.500000\n{OWN}"), only)
        self.assert_same(self.tensors(self.folder / "out.ckpt"), self.tensors(self.folder / "run"))

    def test_latest_names_the_newest(self):
        run = self.folder / "run"
        self.assertEqual(self.case("load", run, 1).out.splitlines()[0], "nothing")
        self.assertEqual(self.case("save", run, 1, "--case.tag", "first").code, 0)
        self.assertEqual(self.case("save", run, 1, "--case.steps", 4).code, 0)
        self.assertEqual(self.case("save", run, 1, "--case.tag", "aside", "--case.latest", "false").code, 0)
        self.assertEqual(self.case("load", run, 1).out.splitlines()[:2], ["loaded global_step4", "global_steps 4"])
        self.assertEqual(self.case("load", run, 1, "--case.tag", "first").out.splitlines()[:2], ["loaded first", "global_steps 3"])
        self.assertEqual(self.case("load", run / "aside", 1).out.splitlines()[:2], ["loaded aside", "global_steps 3"])
        self.assertIn("global_step4: step 4, 1 ranks, strategy", self.run_program(COMMAND, "inspect", run).out)
        own = self.case("load", run, 1).code, self.run_program(COMMAND, "inspect", self.folder / "out.ckpt").out
        self.assertEqual((own[0], own[1].splitlines()[0]), (0, f"{self.folder}/out.ckpt: 1 ranks, strategy ddp"))
        (run / "latest").write_text("gone")
        self.assert_refused(self.case("load", run, 2), 1, "latest", "'gone'", "not there")

    def test_one_that_was_moved_aside_is_there(self):
        run = self.folder / "run"
        self.assertEqual(self.case("save", run, 1).code, 0)
        (run / "global_step3").rename(run / ".global_step3.01234567-89abcdef.old")
        for flags in ((), ("--case.tag", "global_step3")):
            self.assertEqual(self.case("load", run, 2, *flags).out.splitlines()[:2], ["loaded global_step3", "global_steps 3"])
        self.assertEqual(self.run_program(COMMAND, "zero-to-fp32", run, self.folder / "out.safetensors").code, 0)

    def test_ranks_read_what_rank_0_has_found(self):
        for name in ("one", "other"):
            self.assertEqual(self.case("save", self.folder / name, 1, "--case.tag", name).code, 0)
        shutil.copytree(self.folder / "one" / "one", self.folder / "other" / "one")
        result = self.case("load", self.folder / "one", 2, "--case.dir_of_rank_1", self.folder / "other")
        self.assertEqual(result.code, 0, result)
        (self.folder / "one" / "latest").write_text("gone")
        self.assert_refused(self.case("load", self.folder / "one", 2, "--case.dir_of_rank_1", self.folder / "other"), 1, "'gone'")
        result = self.case("load", FOLDERS / "stage2", 2, "--case.dir_of_rank_1", FOLDERS / "stage3")
        self.assert_refused(result, 1, "'global_step3' of stage 2, saved by 2 ranks, as on rank 0", "of stage 3")

    def test_what_is_left_out_of_a_model(self):
        run = self.folder / "run"
        self.assertEqual(self.case("save", run, 2, "--case.filter", "hidden").code, 0)
        self.assertEqual(sorted(self.tensors(run)), ["hidden.bias", "hidden.weight"])
        self.assert_refused(self.case("load", run, 2), 1, "norm.weight")
        result = self.case("load", run, 2, "--case.strict", "false")
        self.assertEqual((result.code, result.out.splitlines()[0]), (0, "loaded global_step3"), result)
        self.assertIn("norm.weight", result.err)

    def test_client_state_is_the_programs(self):
        run = self.folder / "run"
        self.assertEqual(self.case("save", run, 1, "--case.steps", 0, "--fabric.precision", "16-mixed").code, 0)
        self.assertIn("MixedPrecision/scale", self.run_program(COMMAND, "inspect", run).out)
        for flags in (("--case.module_only", "true"), ("--case.optimizer_states", "false", "--fabric.precision", "16-mixed")):
            result = self.case("load", run, 1, *flags)
            self.assertEqual((result.code, result.out.splitlines()[-1]), (0, "client state:"), result)

    def test_tags_that_differ(self):
        run = self.folder / "run"
        warned = self.case("save", run, 2, "--case.odd_rank", "true", "--case.tag", "even")
        self.assertEqual((warned.code, warned.out), (0, "saved even\n"), warned)
        self.assertIn("takes the tag of rank 0; got 'even' on rank 0, 'odd' on rank 1", warned.err)
        config = self.folder / "ds.json"
        for word in ("Ignore", "Fail"):
            config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1},
                                          "zero_allow_untested_optimizer": True, "checkpoint": {"tag_validation": word}}))
            result = self.case("save", run, 2, "--case.odd_rank", "true", "--case.tag", word, "--fabric.strategy", "deepspeed",
                               "--fabric.strategy.config", config)
            if word == "Ignore":
                self.assertEqual(result.code, 0, result)
                self.assertNotIn("rank 1", result.err)
            else:
                self.assert_refused(result, 2, "'Fail' on rank 0, 'odd' on rank 1", "tag_validation")
        result = self.case("save", run, 2, "--case.odd_rank", "true", "--case.tag", "Fail", "--case.tag_validation", "fail")
        self.assert_refused(result, 2, "'Fail' on rank 0, 'odd' on rank 1")
        result = self.case("save", run, 2, "--case.odd_rank", "true", "--case.tag", "even", "--fabric.strategy", "deepspeed",
                           "--fabric.strategy.config", config, "--case.tag_validation", "warn")
        self.assertEqual(result.code, 0, result)
        self.assert_refused(self.case("save", run, 2, "--case.tag", " a"), 2, "the name of a folder", "' a'")
        self.assertFalse((run / "Fail").exists() or (run / "odd").exists())
        self.assert_refused(self.case("save", run, 2, "--case.tag", "a/b"), 2, "the name of a folder", "'a/b'")

    def test_a_trainer_takes_the_folder(self):
        run = self.folder / "run"
        result = self.run_program(RESUME, "fit", "--run_dir", run, "--seed_everything", 1)
        self.assertEqual(result.code, 0, result)
        (run / "checkpoints" / "latest").write_text("last.ckpt")
        result = self.run_program(RESUME, "fit", "--run_dir", self.folder / "again", "--ckpt_path", run / "checkpoints")
        self.assertEqual(result.code, 0, result)
        last = [folder / "checkpoints" / "last.ckpt" for folder in (run, self.folder / "again")]
        self.assert_same(self.tensors(last[1]), self.tensors(last[0]))


class OfDeepSpeed(ZeroTest):
    def changed(self, name, change, *files):
        """A copy of a folder in whose files of those names `change` was called with what they hold."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(FOLDERS / name, copy)
        for pattern in files:
            for file in (copy / "global_step3").glob(pattern):
                with stand_ins_of_deepspeed() as scaler:
                    saved = torch.load(file, weights_only=False)
                    change(saved, scaler)
                    torch.save(saved, file)
        return copy

    def assert_loaded(self, name, ranks, *flags):
        result = self.case("load", FOLDERS / name, ranks, *flags)
        self.assertEqual((result.code, result.out.splitlines()),
                         (0, ["loaded global_step3", "global_steps 3", "lr 0.007925", "group rest: 0.01, 0.9 0.999",
                              f"client state: {CLIENT_STATE}", "of the program"]), result)
        expected = safetensors.numpy.load_file(FOLDERS / f"{name}.safetensors")
        expected.setdefault("frozen", safetensors.numpy.load_file(FOLDERS / "stage2.safetensors")["frozen"])
        self.assert_same(self.tensors(self.folder / "out.ckpt"), expected)
        moments = safetensors.numpy.load_file(FOLDERS / f"{name}.adam.safetensors")
        got = self.tensors(self.folder / "out.ckpt", "optimizer")
        for path, value in moments.items():
            self.assertEqual(got["state/" + path].ravel().tobytes(), value.tobytes(), path)
            self.assertEqual(got["state/" + path.rpartition("/")[0] + "/step"], 3)

    def test_every_stage_to_every_strategy(self):
        for name in ("stage1", "stage2", "stage3", "stage3_three_ranks", "stage3_sub_groups", "stage2_bf16", "stage3_bf16"):
            with self.subTest(name):
                self.assert_loaded(name, 2)
        self.assert_loaded("stage3_three_ranks", 2, *STAGE_3)
        self.assert_loaded("stage2", 3, *STAGE_3)

    def test_the_schedule_goes_on(self):
        result = self.case("load", FOLDERS / "stage2", 2, "--case.schedule", "true")
        self.assertEqual((result.code, result.out.splitlines()[2:4]), (0, ["lr 0.007925", "next lr 0.010000"]), result)
        anew = self.case("load", FOLDERS / "stage2", 2, "--case.schedule", "true", "--case.lr_scheduler_states", "false")
        self.assertEqual((anew.code, anew.out.splitlines()[2:4]), (0, ["lr 0.007925", "next lr 0.000000"]), anew)
        alone = self.case("load", FOLDERS / "stage2", 2, "--case.optimizer_states", "false")
        self.assertEqual((alone.code, alone.out.splitlines()[2]), (0, "lr 0.500000"), alone)
        self.assertTrue((self.tensors(self.folder / "out.ckpt", "optimizer")["state/hidden.weight/exp_avg"] == 0).all())
        run = self.folder / "run"  # which has none
        self.assertEqual(self.case("save", run, 1).code, 0)
        self.assert_refused(self.case("load", run, 1, "--case.schedule", "true"), 1, "has no \"schedule\"")

    def test_the_loss_scale_goes_on(self):
        def set_scale(saved, scaler):
            state = saved["optimizer_state_dict"]
            state["dynamic_loss_scale"], state["loss_scaler"] = True, scaler(cur_scale=4096.0, dtype=torch.float16)

        copy = self.changed("stage2", set_scale, "*optim_states.pt")
        config = self.folder / "ds.json"
        config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": True, "loss_scale": 128},
                                      "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}))
        for flags, scale in ((("--fabric.precision", "16-mixed"), "4096.0"),
                             (("--fabric.strategy", "deepspeed", "--fabric.strategy.config", config), "128.0")):
            result = self.case("load", copy, 2, *flags)
            self.assertEqual(result.code, 0, result)
            self.assertIn(f"MixedPrecision/scale: {scale}", self.run_program(COMMAND, "inspect", self.folder / "out.ckpt").out)

    def test_settings_of_groups(self):
        def set_as_json_has_them(saved, _):
            matrices, others = saved["optimizer_state_dict"]["base_optimizer_state"]["param_groups"]
            matrices.update(weight_decay=1, betas=[0.7, 0.95])
            others.update(weight_decay=0, betas=[0.7, 0.95])

        def spoil(saved, _):
            saved["optimizer_state_dict"]["base_optimizer_state"]["param_groups"][0]["weight_decay"] = "much"

        of_json = self.changed("stage2", set_as_json_has_them, "*optim_states.pt")
        for folder, decay, betas in ((FOLDERS / "stage3", "0.1", "0.9 0.999"), (FOLDERS / "stage3_sub_groups", "0.1", "0.9 0.999"), (of_json, "1", "0.7 0.95")):
            two = self.case("load", folder, 2, "--case.two_groups", "true")
            expected = [f"group {name}: 0, {betas}" for name in ("norm.*", "*.bias", "scale")] + [f"group rest: {decay}, {betas}"]
            self.assertEqual((two.code, two.out.splitlines()[3:7]), (0, expected), two)
            one = self.case("load", folder, 2)
            self.assertEqual((one.code, one.out.splitlines()[3]), (0, f"group rest: 0.01, {betas}"), one)
            self.assertIn("weight_decay", one.err)
            self.assertEqual(one.err.count("the group keeps its own"), 1, one)  # by rank 0
        result = self.case("load", self.changed("stage2", spoil, "*optim_states.pt"), 1)
        self.assert_refused(result, 1, "weight_decay of a group", "numbers", "str")

        def shorten(saved, _):
            saved["optimizer_state_dict"]["base_optimizer_state"]["param_groups"][0]["betas"] = [0.9]

        result = self.case("load", self.changed("stage2", shorten, "*optim_states.pt"), 1)
        self.assert_refused(result, 1, "betas of a group", "2 numbers", "got 0.9")

    def test_what_is_missing_may_stay_as_it_is(self):
        copy = self.changed("stage2", lambda saved, _: saved.update(lr_scheduler=None), "*model_states.pt")
        flags = ("--case.schedule", "true")
        self.assert_refused(self.case("load", copy, 1, *flags), 1, 'has no "schedule"')
        anew = self.case("load", copy, 1, *flags, "--case.strict", "false")
        self.assertEqual((anew.code, anew.out.splitlines()[:4]),
                         (0, ["loaded global_step3", "global_steps 3", "lr 0.007925", "next lr 0.000000"]), anew)
        result = self.case("load", FOLDERS / "stage0", 2, "--case.strict", "false")
        self.assertEqual((result.code, result.out.splitlines()[:3]), (0, ["loaded global_step3", "global_steps 3", "lr 0.500000"]), result)

    def test_a_renamed_module(self):
        flags = ("--case.renamed", "true", "--case.optimizer_states", "false")
        self.assert_refused(self.case("load", FOLDERS / "stage2", 2, *flags), 1, "norm.weight", "other.weight")
        result = self.case("load", FOLDERS / "stage2", 2, *flags, "--case.strict", "false")
        self.assertEqual(result.code, 0, result)
        self.assertIn("norm.weight", result.err)
        got = self.tensors(self.folder / "out.ckpt")
        self.assertTrue((got["other.weight"] == 1).all())
        self.assertEqual(got["hidden.weight"].tobytes(),
                         safetensors.numpy.load_file(FOLDERS / "stage2.safetensors")["hidden.weight"].tobytes())

    def test_the_model_alone_needs_no_state_of_the_optimizer(self):
        def make_elastic(saved, _):
            state = saved["optimizer_state_dict"]
            state["base_optimizer_state"] = [state["base_optimizer_state"]["state"]]

        copy = self.changed("stage2", make_elastic, "*optim_states.pt")
        self.assert_refused(self.case("load", copy, 2), 1, "base_optimizer_state", "elastic_checkpoint")
        result = self.case("load", copy, 2, "--case.module_only", "true", "--fabric.precision", "16-mixed")
        self.assertEqual(result.code, 0, result)

    def test_files_of_several_steps(self):
        def advance(saved, _):
            for row in saved["optimizer_state_dict"]["base_optimizer_state"]["state"].values():
                row["step"] += 1

        result = self.case("load", self.changed("stage2", advance, "zero_pp_rank_1*"), 1)
        self.assert_refused(result, 1, "zero_pp_rank_1", "step of row", "same step")
        result = self.run_program(COMMAND, "zero-to-fp32", self.folder / "copy", self.folder / "out.safetensors")
        self.assert_refused(result, 1, "zero_pp_rank_1", "step of row", "same step")

    def test_pieces_of_what_is_frozen(self):
        def lengthen(saved, _):
            pieces = saved["frozen_param_fragments"]
            pieces["frozen"] = torch.cat([pieces["frozen"], torch.zeros(1)])

        result = self.run_program(COMMAND, "zero-to-fp32", self.changed("stage3", lengthen, "zero_pp_rank_0*model_states.pt"),
                                  self.folder / "out.safetensors")
        self.assert_refused(result, 1, "'frozen'", "18 elements", "got 19")

    def test_a_latest_that_was_left_over(self):
        folder = self.folder / "hub"
        folder.mkdir()
        shutil.copy(FOLDERS / "stage2.safetensors", folder / "model.safetensors")
        (folder / "latest").write_text("global_step500")
        out = self.folder / "weights.safetensors"
        result = self.run_program(BINARY / "bin" / "interop_case", "weights", folder, out)
        self.assertEqual(result.code, 0, result)
        self.assert_same(safetensors.numpy.load_file(out), safetensors.numpy.load_file(folder / "model.safetensors"))

    def test_files_that_do_not_belong_together(self):
        def damaged(name, change):
            copy = self.folder / name
            shutil.copytree(FOLDERS / "stage3", copy)
            change(copy / "global_step3")
            return self.run_program(COMMAND, "zero-to-fp32", copy, self.folder / f"{name}.safetensors")

        def another_step(folder):
            file = folder / "zero_pp_rank_1_mp_rank_00_model_states.pt"
            with stand_ins_of_deepspeed():
                saved = torch.load(file, weights_only=False)
                saved["global_steps"] = 9
                torch.save(saved, file)

        def copied(folder):
            shutil.copy(folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt", folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt")

        def of_another_run(folder):
            shutil.copy(next((FOLDERS / "stage3_bf16").glob("*/*zero_pp_rank_1_mp_rank_00_optim_states.pt")),
                        folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt")

        self.assert_refused(damaged("steps", another_step), 1, "zero_pp_rank_1_mp_rank_00_model_states.pt", "global_steps")
        self.assert_refused(damaged("copied", copied), 1, "zero_pp_rank_1_mp_rank_00_optim_states.pt", "those of rank 0", "a copy")
        self.assert_refused(damaged("run", of_another_run), 1, "zero_pp_rank_1_mp_rank_00_optim_states.pt", "ds_config")
        self.assertEqual(list(self.folder.glob("*.safetensors")), [])

    def test_of_stage_0_the_model(self):
        result = self.case("load", FOLDERS / "stage0", 2, "--case.module_only", "true")
        self.assertEqual(result.code, 0, result)
        self.assert_same(self.tensors(self.folder / "out.ckpt"), safetensors.numpy.load_file(FOLDERS / "stage0.safetensors"))
        self.assert_refused(self.case("load", FOLDERS / "stage0", 2), 1, "stage 0", "load the model alone")

    def test_weights_are_read_as_others(self):
        for name in ("stage0", "stage2", "stage3_bf16"):
            out = self.folder / "weights.safetensors"
            result = self.run_program(BINARY / "bin" / "interop_case", "weights", FOLDERS / name, out)
            self.assertEqual(result.code, 0, result)
            self.assert_same(safetensors.numpy.load_file(out), safetensors.numpy.load_file(FOLDERS / f"{name}.safetensors"))

    def test_what_is_wrong_is_named(self):
        copy = self.folder / "copy"
        shutil.copytree(FOLDERS / "stage3", copy)
        missing = copy / "global_step3" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
        missing.unlink()
        self.assert_refused(self.case("load", copy, 2), 1, copy, "lacks the file", missing.name)
        result = self.run_program(RESUME, "fit", "--run_dir", self.folder / "run", "--ckpt_path", FOLDERS / "stage3")
        self.assert_refused(result, 1, "is a checkpoint of DeepSpeed", "zero-to-fp32")

    def make_folder(self, shapes, flat, buffers=()):
        """A checkpoint of stage 2 of two ranks, with the parameters in `flat`."""
        step = self.folder / "made" / "global_step1"
        step.mkdir(parents=True)
        torch.save({"module": dict(buffers), "buffer_names": list(dict(buffers)), "param_shapes": [shapes], "shared_params": {}},
                   step / "mp_rank_00_model_states.pt")
        for rank, part in enumerate(flat.chunk(2)):
            state = {"zero_stage": 2, "partition_count": 2, "single_partition_of_fp32_groups": [part.clone()]}
            torch.save({"optimizer_state_dict": state}, step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        (step.parent / "latest").write_text("global_step1")
        return step

    def test_training_starts_from_its_weights(self):
        saved = self.folder / "weights.safetensors"
        result = self.run_program(RESUME, "fit", "--run_dir", self.folder / "run", "--save_weights", saved)
        self.assertEqual(result.code, 0, result)
        weights = safetensors.torch.load_file(saved)
        buffers = {name: value for name, value in weights.items() if "running" in name or "num_batches" in name}
        trained = {name: value for name, value in weights.items() if name not in buffers}
        step = self.make_folder({name: value.shape for name, value in trained.items()},
                                torch.cat([value.flatten() for value in trained.values()]), buffers)
        for place in (step, step.parent):
            again = self.folder / "again.safetensors"
            result = self.run_program(RESUME, "fit", "--run_dir", self.folder / "run", "--init_weights", place,
                                      "--trainer.max_epochs", 0, "--save_weights", again)
            self.assertEqual(result.code, 0, result)
            self.assert_same(safetensors.numpy.load_file(again), safetensors.numpy.load_file(saved))

    def test_memory_is_for_one_tensor(self):
        """Tensors of 8 MiB: one and a half may be in memory besides what the program takes without any; two and a half for torch.save."""
        step = self.make_folder({"w": torch.Size([4])}, torch.zeros(4))
        empty_mib = self.least_data_mib(COMMAND, "zero-to-fp32", step, self.folder / "small")

        def convert(name, more_mib):
            result = self.finish(self.start(COMMAND, "zero-to-fp32", step, self.folder / name,
                                            preexec_fn=data_limit(empty_mib + more_mib)))
            self.assertEqual(result.code, 0, (empty_mib, result))
        shutil.rmtree(step.parent)
        shapes = {f"layer.{i}": torch.Size([1024, 2048]) for i in range(8)}
        step = self.make_folder(shapes, torch.cat([torch.full((4 * 2**21,), value) for value in (1.0, 2.0)]))
        for name, more_mib in (("out.safetensors", 12), ("out.pt", 20), ("out", 12)):
            convert(name, more_mib)
        buffers = {f"turned.{i}": torch.full((1024, 2048), float(i)).t() for i in range(8)}
        shutil.rmtree(step.parent)
        step = self.make_folder({"w": torch.Size([4])}, torch.zeros(4), buffers)
        convert("turned.safetensors", 12)
        turned = safetensors.torch.load_file(self.folder / "turned.safetensors")
        self.assertEqual([(value.shape, value[5, 7].item()) for name, value in sorted(turned.items()) if name != "w"],
                         [((2048, 1024), float(i)) for i in range(8)])
        state = torch.load(self.folder / "out.pt", mmap=True)
        self.assertEqual([value[0, 0].item() for value in state.values()], [1.0] * 4 + [2.0] * 4)

    def test_the_command(self):
        out = self.folder / "out"
        self.assertEqual(self.run_program(COMMAND, "zero-to-fp32", FOLDERS / "stage3", out, "--max_shard_size", "1KB").code, 0)
        self.assert_same(safetensors.numpy.load_file(out / "model.safetensors"),
                         safetensors.numpy.load_file(FOLDERS / "stage3.safetensors"))
        one = self.folder / "one.safetensors"
        self.assertEqual(self.run_program(COMMAND, "zero_to_fp32", FOLDERS / "stage3", one, "-t", "global_step3",
                                          "--exclude-frozen-parameters").code, 0)
        self.assertNotIn("frozen", safetensors.numpy.load_file(one))
        for flags, words in ((["--tag", "x"], ["'x'", "not there"]), (["--max-shard-size", "5"], ["max_shard_size", "'5'"])):
            result = self.run_program(COMMAND, "zero-to-fp32", FOLDERS / "stage3", self.folder / "none", *flags)
            self.assertNotEqual(result.code, 0)
            self.assert_refused(result, result.code, *words)
        self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
