"""Sharded strategies give the bits of ddp, and their checkpoints go from one to the other."""
import json
import os
import unittest

from harness import BINARY, ProgramTest, data_limit

CASE = BINARY / "bin" / "resume_case"
LM = BINARY / "bin" / "example_05_fsdp_transformer"
WINDOWS = ["--trainer.accumulate_grad_batches", 2, "--trainer.gradient_clip_val", 0.5]


def strategy(name, ranks, **options):
    flags = ["--trainer.strategy", name, "--trainer.devices", ranks]
    for key, value in options.items():
        flags += [f"--trainer.strategy.{key}", value]
    return flags


def fsdp(ranks, sharding="FULL_SHARD", **options):
    return strategy("fsdp", ranks, sharding_strategy=sharding, auto_wrap_policy="Linear", **options)


class Sharded(ProgramTest):
    def train(self, name, *flags):
        weights = self.folder / f"{name}.safetensors"
        result = self.run_program(CASE, "fit", "--seed_everything", 5, "--run_dir", self.folder / name, "--save_weights", weights,
                                  *WINDOWS, *flags)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("training goes on", result.err)
        return weights.read_bytes()

    def checkpoint_of(self, name):
        return self.folder / name / "checkpoints" / "last.ckpt"

    def test_every_sharding_strategy_gives_the_bits_of_ddp(self):
        for ranks, shardings in ((2, ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")), (4, ("FULL_SHARD", "HYBRID_SHARD"))):
            expected = self.train(f"ddp_{ranks}", *strategy("ddp", ranks), "--case.batch_size", 8 // ranks)
            for sharding in shardings:
                with self.subTest(sharding, ranks=ranks):
                    mesh = {"device_mesh": "2,2"} if sharding == "HYBRID_SHARD" else {}
                    got = self.train(f"{sharding}_{ranks}", *fsdp(ranks, sharding, **mesh), "--case.batch_size", 8 // ranks)
                    self.assertEqual(got, expected)
        summary = json.loads((self.folder / "FULL_SHARD_2" / "summary.json").read_text())
        self.assertEqual(summary["strategy"], "fsdp")

    def test_a_trace_shows_that_collectives_run_beside_operators(self):
        run = self.folder / "run"
        result = self.run_program(LM, "fit", "--run_dir", run, *strategy("fsdp", 2), "--trainer.profiler", "trace", "--trainer.max_steps", 5,
                                  "--trainer.limit_val_batches", 0, "--sample.tokens", 0)
        self.assertEqual(result.code, 0, result)
        for rank in (0, 1):
            events = [e for e in json.loads((run / f"fit-trace-{rank}.json").read_text())["traceEvents"] if e["ph"] == "X"]

            def named(name):
                return sorted((e for e in events if e["name"].endswith(name)), key=lambda e: e["ts"])

            def beside(name, span):
                """Those of other threads that began and ended within `span`."""
                return sum(e["tid"] != span["tid"] and span["ts"] <= e["ts"] and e["ts"] + e["dur"] <= span["ts"] + span["dur"]
                           for e in named(name))

            forward, backward = named(".training_step")[3], named("FsdpStrategy.backward")[3]
            self.assertGreaterEqual(beside("].all_gather", forward), 2, "units of forward")
            self.assertGreaterEqual(beside("].all_gather", backward), 2, "units of backward")
            self.assertGreaterEqual(beside("].reduce_scatter", backward), 3, "gradients")

    def test_synchronised_batch_norm_gives_the_bits_of_ddp(self):
        for name, flags in {"sync": ["--trainer.sync_batchnorm", "true"],
                            "disk": ["--trainer.sync_batchnorm", "true", "--trainer.strategy.cpu_offload", "true",
                                     "--trainer.strategy.offload_dir", self.folder]}.items():
            with self.subTest(name):
                expected = self.train(f"ddp_{name}", *strategy("ddp", 2), *flags[:2])
                self.assertEqual(self.train(f"fsdp_{name}", *fsdp(2), *flags), expected)

    def test_checkpoints_go_from_one_strategy_to_another(self):
        ways = {
            "ddp": strategy("ddp", 2),
            "fsdp": fsdp(2),
            "fsdp_sharded": fsdp(2, state_dict_type="sharded"),
            "fsdp_grad_op": fsdp(2, "SHARD_GRAD_OP", state_dict_type="sharded"),
        }
        expected = self.train("whole", *ways["ddp"])
        for name, flags in ways.items():
            self.train(f"half_{name}", *flags, "--trainer.max_epochs", 1)
        for source in ways:
            for target, flags in ways.items():
                if source == target:
                    continue
                with self.subTest(f"{source} to {target}"):
                    got = self.train(f"{source}_{target}", *flags, "--ckpt_path", self.checkpoint_of(f"half_{source}"))
                    self.assertEqual(got, expected)

    def test_shards_are_written_by_their_ranks_and_load_on_any_number(self):
        self.train("four", *fsdp(4, state_dict_type="sharded"), "--case.batch_size", 2, "--trainer.max_epochs", 1)
        names = {path.name for path in self.checkpoint_of("four").iterdir()}
        self.assertNotIn("model.safetensors", names)
        self.assertIn("model.safetensors.index.json", names)
        for rank in range(1, 5):
            self.assertIn(f"optimizer-0000{rank}-of-00004.safetensors", names)
        path = self.checkpoint_of("four")
        results = {}
        for name, flags in {"one": ["--case.batch_size", 8], "ddp": strategy("ddp", 2), "fsdp": fsdp(2),
                            "three": [*fsdp(3), "--case.batch_size", 8]}.items():
            weights = self.folder / f"{name}_weights.safetensors"
            result = self.run_program(CASE, "fit", "--run_dir", self.folder / name, "--ckpt_path", path, "--save_weights", weights,
                                      "--trainer.max_epochs", 1, *flags)
            self.assertEqual(result.code, 0, result)
            results[name] = weights.read_bytes()
        self.assertEqual(len(set(results.values())), 1, "loading alone changed the weights")

    def test_checkpoints_tell_the_mesh(self):
        meshes = {"FULL_SHARD": {"replicate": 1, "shard": 4}, "NO_SHARD": {"replicate": 4, "shard": 1},
                  "HYBRID_SHARD": {"replicate": 2, "shard": 2}}
        for name, mesh in meshes.items():
            with self.subTest(name):
                flags = fsdp(4, name, **({"device_mesh": "2,2"} if name == "HYBRID_SHARD" else {}))
                self.train(name, *flags, "--case.batch_size", 2, "--trainer.max_epochs", 1)
                self.assertEqual(json.loads((self.checkpoint_of(name) / "manifest.json").read_text())["mesh"], mesh)

    def test_a_policy_that_matches_nothing_lists_what_there_is(self):
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("fsdp", 2, auto_wrap_policy="Lstm"))
        self.assert_refused(result, 2, "auto_wrap_policy matches no module", "Linear", "Lstm")

    def test_a_mesh_that_does_not_fit_is_named(self):
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *fsdp(2, "HYBRID_SHARD", device_mesh="2,2"))
        self.assert_refused(result, 2, "device_mesh does not fit", "copies x shards = 2 ranks", "2 x 2")

    def test_ranks_may_have_more_batches_to_validate_than_others(self):
        # In the third epoch two of the ranks have a batch more.
        expected = self.train("ddp", *strategy("ddp", 3), "--case.num_samples", 90)
        got = self.train("fsdp", *fsdp(3), "--case.num_samples", 90)
        self.assertEqual(got, expected)
        metrics = [json.loads((self.folder / name / "summary.json").read_text())["metrics"]["val_loss"] for name in ("ddp", "fsdp")]
        self.assertEqual(metrics[0], metrics[1])

    def language_model(self, layers, width, *flags, ranks=4, limit_mib=None):
        """Starts training of one, on ranks that may not have more memory than that."""
        model = ["--model.layers", layers, "--model.width", width, "--model.heads", 8, "--model.context", 32, "--data.batch_size", 1]
        limit = None if limit_mib is None else data_limit(limit_mib)
        return self.start(LM, "fit", "--run_dir", self.folder / "capped", *model,
                          "--trainer.devices", ranks, "--trainer.max_steps", 2, "--trainer.limit_val_batches", 0,
                          "--trainer.enable_checkpointing", "false", "--sample.tokens", 0, *flags, preexec_fn=limit)

    def those_that_fail(self, model, ways, ranks, limit_mib):
        results = [self.finish(self.language_model(*model, *way, ranks=ranks, limit_mib=limit_mib), deadline_s=300) for way in ways]
        return [result for result in results if result.code != 0]

    def assert_trains_in_less(self, model, without, *ways, ranks=4):
        """Each way trains where there is a little more memory than it takes here, and without them there is too little."""
        limit = max(self.peak_data_mib(self.language_model(*model, *way, ranks=ranks)) for way in ways) * 11 // 10
        # On a busy machine a peak may pass between two looks.
        tries = 3
        while failed := self.those_that_fail(model, ways, ranks, limit):
            tries -= 1
            self.assertGreater(tries, 0, failed)
            limit = limit * 5 // 4
        refused = self.finish(self.language_model(*model, *without, ranks=ranks, limit_mib=limit), deadline_s=300)
        self.assert_refused(refused, 1, "memory")
        return limit

    def test_a_model_trains_where_ddp_has_not_enough_memory(self):
        models = [(19, 512)]  # 60 million parameters
        if "LOCKSTEP_LARGE_MODELS" in os.environ:
            models.append((21, 1024))  # 1 GiB of parameters
        for model in models:
            self.assert_trains_in_less(model, ["--trainer.strategy", "ddp"], ["--trainer.strategy", "fsdp"])

    def test_a_model_trains_from_disk_whose_state_is_four_times_the_memory(self):
        model = (54, 512)  # 170 million parameters: 1300 MiB of Adam's state, besides parameters and gradients
        limit_mib = self.assert_trains_in_less(
            model, ["--trainer.strategy", "fsdp"],
            ["--trainer.strategy", "fsdp_cpu_offload", "--trainer.strategy.offload_dir", self.folder],
            ["--trainer.strategy", "deepspeed_stage_3_offload_nvme", "--trainer.strategy.nvme_path", self.folder], ranks=1)
        self.assertLess(4 * limit_mib, 1400)  # MiB of state

    def test_a_batch_trains_whose_activations_have_not_enough_memory(self):
        batch = [10, 128, "--model.context", 256, "--data.batch_size", 16]
        fsdp = ["--trainer.strategy", "fsdp"]
        offloaded = [*fsdp, "--trainer.strategy.activation_offload", "true", "--trainer.strategy.offload_dir", self.folder]
        self.assert_trains_in_less(batch, fsdp, offloaded, ranks=1)
        with_it, without = (self.peak_data_mib(self.language_model(*batch, *way, ranks=1)) for way in (offloaded, fsdp))
        self.assertLess(2 * with_it, without, "memory of tensors that are on disk was not given back")


if __name__ == "__main__":
    unittest.main()
