"""Models of transformers go into C++ by a table of names, are trained there, and come back."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

from harness import BINARY, ProgramTest, use_peers

use_peers("transformers")

os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch
import torch
import transformers
from transformers import (GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM, ViTConfig,
                          ViTForImageClassification)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PROGRAM = BINARY / "bin" / "example_11_models_from_elsewhere"

# Both sides compute in float32, and add in another order in places: Conv1D is x W + b, Linear x W^T + b, and gelu is one operator
# here. Each rounds by 6e-8, and some dozen of such operators follow each other. Bound of the largest difference over the largest score.
TOLERANCE = 2e-6

GPT2 = dict(vocab_size=97, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
LLAMA = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4)
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16}

MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gpt2_untied": lambda: GPT2LMHeadModel(GPT2Config(**GPT2 | dict(n_inner=40, activation_function="gelu", layer_norm_epsilon=1e-3,
                                                                  tie_word_embeddings=False))),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama_tied": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA | dict(num_key_value_heads=1, head_dim=12, attention_bias=True, mlp_bias=True,
                                                                      rms_norm_eps=1e-3, tie_word_embeddings=True,
                                                                      rope_parameters=LLAMA3_ROPE))),
    "llama_linear": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA | dict(rope_parameters={"rope_type": "linear", "rope_theta": 1000.0,
                                                                                         "factor": 2.5}))),
    "vit": lambda: ViTForImageClassification(ViTConfig(**VIT, num_labels=5)),
    "vit_of_two": lambda: ViTForImageClassification(ViTConfig(**VIT | dict(qkv_bias=False, hidden_act="gelu_new", num_channels=1,
                                                                           layer_norm_eps=1e-3))),
}


def random_model(name):
    """With numbers in all tensors: transformers starts biases with zeros and norms with ones."""
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def samples_of(name, count=8):
    generator = torch.Generator().manual_seed(1)
    if not name.startswith("vit"):
        return {"input_ids": torch.randint(0, 97, (count, 24), generator=generator)}
    channels, classes = (1, 2) if name == "vit_of_two" else (3, 5)
    return {"pixel_values": torch.randn(count, channels, 16, 16, generator=generator),
            "labels": torch.randint(0, classes, (count,), generator=generator)}


def scores_of(model, samples):
    inputs = {key: value for key, value in samples.items() if key != "labels"}
    with torch.no_grad():
        return model(**inputs).logits


class ModelsTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        everybody = BINARY / "test_files"
        everybody.mkdir(exist_ok=True)
        cls.made = pathlib.Path(tempfile.mkdtemp(dir=everybody))
        cls.addClassCleanup(shutil.rmtree, cls.made, ignore_errors=True)

    def model_folder(self, name):
        """A folder in several files, with an index, that tests only read."""
        folder = self.made / name
        if not folder.exists():
            random_model(name).save_pretrained(folder, max_shard_size="20KB")
            self.assertTrue((folder / "model.safetensors.index.json").exists())
        return folder

    def sample_file(self, name):
        file = self.folder / f"{name}.samples.safetensors"
        safetensors.torch.save_file(samples_of(name), file)
        return file

    def program(self, *flags):
        return self.run_program(PROGRAM, *flags, "--run_dir", self.folder / "run", "--trainer.enable_progress_bar", "false")

    def predicted(self, folder, name):
        out = self.folder / "scores.safetensors"
        result = self.program("predict", "--model.folder", folder, "--data.file", self.sample_file(name), "--predict.scores", out)
        self.assertEqual(result.code, 0, result)
        return safetensors.torch.load_file(out)["scores"]

    def assert_equal_scores(self, got, expected):
        self.assertEqual(got.shape, expected.shape)
        difference = ((got - expected).abs().max() / expected.abs().max()).item()
        if os.environ.get("LOCKSTEP_PRINT_DIFFERENCES"):
            print(f"{self.id()}: {difference:.2e}")
        self.assertLess(difference, TOLERANCE)

    def fit(self, name, out, *flags):
        result = self.program("fit", "--model.folder", self.model_folder(name), "--data.file", self.sample_file(name),
                              "--data.batch_size", "2", "--trainer.devices", "2", "--trainer.max_epochs", "2", "--optimizer.lr", "0.01",
                              "--seed_everything", "3", "--trainer.enable_checkpointing", "false", "--export.folder", out, *flags)
        self.assertEqual(result.code, 0, result)
        return self.tensors_of(out)

    def tensors_of(self, folder):
        return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in safetensors.torch.load_file(file).items()}

    def assert_same_tensors(self, got, expected):
        self.assertEqual(sorted(got), sorted(expected))
        for name, tensor in expected.items():
            self.assertEqual((got[name].dtype, got[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(torch.equal(got[name], tensor), name)

    def loaded(self, folder, name, **options):
        model, info = type(MODELS[name]()).from_pretrained(folder, output_loading_info=True, **options)
        self.assertEqual({key: list(value) for key, value in info.items() if value}, {})
        return model.eval()


class Scores(ModelsTest):
    def test_are_those_of_transformers(self):
        for name in MODELS:
            with self.subTest(name):
                expected = scores_of(self.loaded(self.model_folder(name), name), samples_of(name))
                self.assert_equal_scores(self.predicted(self.model_folder(name), name), expected)

    def test_of_weights_in_bfloat16(self):
        for name in ("gpt2", "llama_tied", "vit"):
            with self.subTest(name):
                folder = self.folder / f"{name}_bf16"
                random_model(name).bfloat16().save_pretrained(folder, max_shard_size="20KB")
                self.assertIn('"dtype": "bfloat16"', (folder / "config.json").read_text())
                expected = scores_of(self.loaded(folder, name, dtype=torch.float32), samples_of(name))
                self.assert_equal_scores(self.predicted(folder, name), expected)

    def test_of_a_folder_of_the_base_model_in_one_file(self):
        whole = random_model("gpt2")
        folder = self.folder / "base"
        whole.transformer.save_pretrained(folder)
        self.assertIn("wte.weight", self.tensors_of(folder))
        self.assert_equal_scores(self.predicted(folder, "gpt2"), scores_of(whole, samples_of("gpt2")))

    def test_of_a_folder_as_version_4_wrote_it(self):
        folder = self.folder / "old"
        shutil.copytree(self.model_folder("llama_tied"), folder)
        config = json.loads((folder / "config.json").read_text())
        rope = config.pop("rope_parameters")
        config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope, "torch_dtype": config.pop("dtype")}
        (folder / "config.json").write_text(json.dumps(config))
        frequencies = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(6) for layer in range(2)}
        self.add_file(folder, frequencies)
        expected = scores_of(self.loaded(self.model_folder("llama_tied"), "llama_tied"), samples_of("llama_tied"))
        self.assert_equal_scores(self.predicted(folder, "llama_tied"), expected)

    def add_file(self, folder, tensors):
        safetensors.torch.save_file(tensors, folder / "more.safetensors")
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        index["weight_map"] |= dict.fromkeys(tensors, "more.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    def test_largest_are_printed(self):
        result = self.program("predict", "--model.folder", self.model_folder("vit"), "--data.file", self.sample_file("vit"))
        self.assertEqual(result.code, 0, result)
        expected = scores_of(self.loaded(self.model_folder("vit"), "vit"), samples_of("vit")).argmax(-1)
        for sample, number in enumerate(expected.tolist()):
            self.assertIn(f"sample {sample}: {number} (", result.out)


class Training(ModelsTest):
    def test_has_the_same_weights_under_every_strategy_and_comes_back(self):
        strategies = {"gpt2": (("fsdp", "--trainer.strategy.auto_wrap_policy", "Gpt2Block"), ("deepspeed_stage_2",), ("deepspeed_stage_3",)),
                      "llama_tied": (("fsdp", "--trainer.strategy.auto_wrap_policy", "LlamaBlock"),),
                      "vit": (("fsdp", "--trainer.strategy.auto_wrap_policy", "VitBlock"),)}
        for name, others in strategies.items():
            with self.subTest(name):
                out = self.folder / f"{name}_ddp"
                expected = self.fit(name, out, "--export.max_shard_kib", "20", "--trainer.strategy", "ddp")
                before = self.tensors_of(self.model_folder(name))
                self.assertEqual(sorted(expected), sorted(before))
                self.assertTrue(all(not torch.equal(expected[key], before[key]) for key in before if not key.endswith("key.bias")))
                self.assertTrue((out / "model.safetensors.index.json").exists())
                for flags in others:
                    got = self.fit(name, self.folder / f"{name}_{flags[0]}", "--trainer.strategy", *flags)
                    self.assert_same_tensors(got, expected)
                self.assert_equal_scores(self.predicted(out, name), scores_of(self.loaded(out, name), samples_of(name)))

    def test_learns(self):
        out = self.folder / "out"
        self.fit("llama", out, "--trainer.strategy", "fsdp", "--trainer.max_epochs", "10")
        samples = samples_of("llama")
        losses = []
        for folder in (self.model_folder("llama"), out):
            scores = scores_of(self.loaded(folder, "llama"), samples)
            losses.append(torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), samples["input_ids"][:, 1:].flatten()).item())
        self.assertLess(losses[1], 0.7 * losses[0])


class Exports(ModelsTest):
    def test_a_checkpoint_as_fit_exports_it(self):
        for state_dict_type in ("full", "sharded"):
            with self.subTest(state_dict_type):
                direct, later = self.folder / f"{state_dict_type}_direct", self.folder / f"{state_dict_type}_later"
                checkpoint = self.folder / "run" / "checkpoints" / "last.ckpt"
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                expected = self.fit("gpt2", direct, "--trainer.strategy", "fsdp", "--trainer.strategy.auto_wrap_policy", "Gpt2Block",
                                    "--trainer.strategy.state_dict_type", state_dict_type, "--trainer.enable_checkpointing", "true")
                result = self.program("export", "--model.folder", self.model_folder("gpt2"), "--export.from", checkpoint,
                                      "--export.folder", later, "--export.max_shard_kib", "30")
                self.assertEqual(result.code, 0, result)
                self.assert_same_tensors(self.tensors_of(later), expected)
                self.loaded(later, "gpt2")

    def test_other_files_and_the_element_type(self):
        folder, out = self.folder / "model", self.folder / "out"
        shutil.copytree(self.model_folder("llama"), folder)
        (folder / "tokenizer.json").write_text('{"a": 1}')
        (folder / "pytorch_model.bin").write_text("stale")
        safetensors.torch.save_file({f"network.{name}": tensor for name, tensor in {"norm.weight": torch.ones(32)}.items()},
                                    self.folder / "part.safetensors")
        result = self.program("export", "--model.folder", folder, "--export.from", self.folder / "part.safetensors", "--export.folder", out,
                              "--export.dtype", "bfloat16")
        self.assertEqual(result.code, 0, result)
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"])
        self.assertEqual((out / "tokenizer.json").read_text(), '{"a": 1}')
        before, after = (json.loads((at / "config.json").read_text()) for at in (folder, out))
        self.assertEqual(after, before | {"dtype": "bfloat16"})
        self.assert_same_tensors(self.tensors_of(out), {"model.norm.weight": torch.ones(32, dtype=torch.bfloat16)})


class WrongFolders(ModelsTest):
    def copy(self, name):
        folder = self.folder / f"{name}_{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.model_folder(name), folder)
        return folder

    def assert_folder_refused(self, folder, name, code, *words):
        result = self.program("predict", "--model.folder", folder, "--data.file", self.sample_file(name))
        self.assert_refused(result, code, *words)

    def refused_config(self, name, change, *words):
        folder = self.copy(name)
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))
        self.assert_folder_refused(folder, name, 2, folder / "config.json", *words)

    def test_configs(self):
        cases = (("gpt2", lambda c: c.pop("n_embd"), "n_embd", "an integer of at least 1", "nothing"),
                 ("gpt2", lambda c: c.update(n_layer="two"), "n_layer", '"two"'),
                 ("gpt2", lambda c: c.update(n_head=5), "n_embd", "a multiple of n_head = 5", "32"),
                 ("gpt2", lambda c: c.update(activation_function="relu"), "activation_function", "gelu_new", "relu"),
                 ("gpt2", lambda c: c.update(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx", "false"),
                 ("llama", lambda c: c.pop("hidden_size"), "hidden_size", "nothing"),
                 ("llama", lambda c: c.update(rms_norm_eps="x"), "rms_norm_eps", "a number"),
                 ("llama", lambda c: c["rope_parameters"].update(rope_type="yarn"), "rope_parameters.rope_type", "llama3", "yarn"),
                 ("vit", lambda c: c.pop("patch_size"), "patch_size", "nothing"),
                 ("vit", lambda c: c.update(image_size=18), "image_size", "patch_size = 4", "18"),
                 ("gpt2", lambda c: c.update(model_type="bert"), "model_type", "gpt2, llama, vit", "bert"),
                 ("gpt2", lambda c: c.pop("model_type"), "model_type", "nothing"))
        for name, change, *words in cases:
            with self.subTest(words[:2]):
                self.refused_config(name, change, *words)

    def test_files_that_are_no_configs(self):
        folder = self.copy("gpt2")
        (folder / "config.json").write_text("[1]")
        self.assert_folder_refused(folder, "gpt2", 1, folder / "config.json", "a JSON object")
        (folder / "config.json").write_text("{")
        self.assert_folder_refused(folder, "gpt2", 1, folder / "config.json")
        (folder / "config.json").unlink()
        self.assert_folder_refused(folder, "gpt2", 1, folder / "config.json")

    def rewrite(self, folder, name, change):
        """Changes the tensors of the file of that tensor, and the index with it."""
        index_file = folder / "model.safetensors.index.json"
        index = json.loads(index_file.read_text())
        file = index["weight_map"][name]
        tensors = safetensors.torch.load_file(folder / file)
        change(tensors)
        safetensors.torch.save_file(tensors, folder / file, metadata={"format": "pt"})
        index["weight_map"] = {key: held for key, held in index["weight_map"].items() if held != file} | dict.fromkeys(tensors, file)
        index_file.write_text(json.dumps(index))

    def test_tensors(self):
        name = "transformer.h.1.attn.c_attn.weight"
        cases = ((lambda tensors: tensors.pop(name), name, "[32, 96]"),
                 (lambda tensors: tensors.update({"transformer.h.7.ln_1.bias": torch.ones(32)}), "transformer.h.7.ln_1.bias", "[32]"),
                 (lambda tensors: tensors.update({name: torch.ones(32, 95)}), name, "[32, 96]", "[32, 95]"),
                 (lambda tensors: tensors.update({name: torch.ones(32)}), name, "2 dimensions"),
                 (lambda tensors: tensors.update({name: torch.ones(32, 96, dtype=torch.int64)}), name, "Long"))
        for change, *words in cases:
            with self.subTest(words):
                folder = self.copy("gpt2")
                self.rewrite(folder, name, change)
                self.assert_folder_refused(folder, "gpt2", 1, folder, *words)

    def test_indices(self):
        folder = self.copy("gpt2")
        (folder / "model-00002-of-00007.safetensors").unlink()
        self.assert_folder_refused(folder, "gpt2", 1, folder / "model-00002-of-00007.safetensors")

    def test_samples(self):
        folder, file = self.model_folder("gpt2"), self.folder / "samples.safetensors"
        cases = (("gpt2", {"input_ids": torch.full((1, 4), 97)}, "predict", "tokens from 0 to 96", "97"),
                 ("gpt2", {"input_ids": torch.zeros(1, 33, dtype=torch.int64)}, "predict", "up to 32 tokens", "33"),
                 ("gpt2", {"tokens": torch.zeros(1, 3)}, "predict", "input_ids", "no such tensor"),
                 ("gpt2", {"input_ids": torch.zeros(3, 1, dtype=torch.int64)}, "fit", "input_ids", "two tokens"),
                 ("vit", {"pixel_values": torch.zeros(1, 3, 16, 12)}, "predict", "pixel_values", "[images, 3, 16, 16]"),
                 ("vit", {"pixel_values": torch.zeros(1, 3, 16, 16)}, "fit", "labels", "no such tensor"),
                 ("vit", {"pixel_values": torch.zeros(1, 3, 16, 16), "labels": torch.tensor([5])}, "fit", "labels", "from 0 to 4"))
        for name, tensors, verb, *words in cases:
            with self.subTest(words):
                safetensors.torch.save_file(tensors, file)
                result = self.program(verb, "--model.folder", self.model_folder(name), "--data.file", file)
                self.assert_refused(result, 1, file, *words)

    def test_flags(self):
        (self.folder / "full").mkdir()
        (self.folder / "full" / "file").touch()
        model = ("--model.folder", self.model_folder("gpt2"))
        data = ("--data.file", self.sample_file("gpt2"))
        for flags, *words in (((), "--model.folder"), (model, "--data.file"),
                              ((*model, *data, "--export.folder", self.folder / "full"), "export.folder", "full"),
                              ((*model, *data, "--export.dtype", "int8"), "export.dtype", "bfloat16", "int8"),
                              (("export", *model, "--export.folder", self.folder / "new"), "--export.from")):
            with self.subTest(words):
                self.assert_refused(self.program(*flags), 2, *words)


if __name__ == "__main__":
    unittest.main()
