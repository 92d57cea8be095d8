#!/usr/bin/env python3
"""What a machine without a GPU says of CUDA; the libraries of a driver, of LibTorch and of lockstep are those of ./fake_*.cpp."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
TORCH = pathlib.Path(os.environ["LOCKSTEP_TORCH_ROOT"]) / "lib"
FAKES = BUILD / "tests/cuda/fakes"
NVML = BUILD / "tests/device/libnvidia-ml.so.1"
PLUGIN = BUILD / "lib/liblockstep_cuda.so"
MARK = "lockstep-cuda-build: "


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for library in TORCH.glob("*.so*"):  # beside which LibTorch's library for CUDA is looked for
            if library.name != "libtorch_cuda.so":
                (self.folder / library.name).symlink_to(library)

    def add(self, *libraries):
        for library in libraries:
            (self.folder / library.name).symlink_to(library)

    def run_case(self, what, plugin="/none", **environment):
        environment = {"LD_LIBRARY_PATH": str(self.folder), "LOCKSTEP_CUDA_LIBRARY": str(plugin), **environment}
        result = subprocess.run([BUILD / "bin/cuda_case", *what.split()], capture_output=True, text=True, timeout=60,
                                env={**os.environ, **environment})
        self.assertEqual(result.returncode, 0, result.stderr)
        return {"stderr": result.stderr, **json.loads(result.stdout)}

    def error(self, **environment):
        return self.run_case("load", **environment)["error"]

    def check(self, text, *parts):
        for part in parts:
            self.assertIn(part, text)


class TestErrors(Case):
    def test_libtorch_without_cuda(self):
        self.check(self.error(), "LibTorch's library for CUDA cannot be loaded", str(self.folder / "libtorch_cuda.so"))

    def test_no_driver(self):
        self.add(FAKES / "libtorch_cuda.so")
        self.check(self.error(FAKE_DEVICES="0"), "there is no driver of NVIDIA", "libcuda.so.1", "container toolkit")

    def test_a_driver_that_is_none(self):
        """A file of that name without the driver's functions, as some containers have it."""
        self.add(FAKES / "libtorch_cuda.so")
        (self.folder / "libcuda.so.1").symlink_to(NVML)
        self.check(self.error(FAKE_DEVICES="0"), "there is no driver of NVIDIA", "undefined symbol: cu", "container toolkit")

    def test_a_driver_that_is_too_old(self):
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1")
        self.check(self.error(FAKE_DRIVER="12040"), "driver is too old", "expected a driver for CUDA 13.0", "got one for CUDA 12.4")

    def test_a_driver_that_does_not_start(self):
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1")
        self.check(self.error(FAKE_START="803"), "driver does not start", "driver combination (803)", "nvidia-smi", "dmesg")
        self.check(self.error(FAKE_START="999"), "driver does not start", "an unknown error (999)")

    def test_no_visible_device(self):
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1")
        for environment in ({"FAKE_DEVICES": "0"}, {"FAKE_START": "100"}):
            self.check(self.error(**environment), "shows this process no device", "nvidia-smi")
        self.check(self.error(FAKE_START="100", CUDA_VISIBLE_DEVICES="7"), 'CUDA_VISIBLE_DEVICES="7"', "hides devices")

    def test_a_libtorch_that_finds_nothing_where_the_driver_does(self):
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1")
        self.check(self.error(FAKE_BLIND="1"), "LibTorch does not find its CUDA", "CUDA was asked for before", "before torch::manual_seed()")
        self.check(self.error(FAKE_BLIND="1", LD_PRELOAD=str(FAKES / "libtorch_cuda.so")), "no device that it can use")

    def test_a_driver_without_its_management_library(self):
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1")
        result = subprocess.run([BUILD / "bin/digits", "--trainer.accelerator", "gpu", "--run_dir", self.folder / "run"], capture_output=True,
                                text=True, timeout=60, env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)})
        self.assertEqual(result.returncode, 2)
        self.check(result.stderr, "accelerator cuda is not there", "management library shows no device", "CUDA_VISIBLE_DEVICES may hide devices")

    def test_of_programs(self):
        """Ranks are not even started where the management library shows no device."""
        command = [BUILD / "bin/digits", "--trainer.accelerator", "gpu", "--run_dir", self.folder / "run"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60,
                                env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)})
        self.assertEqual(result.returncode, 2)
        self.check(result.stderr, "accelerator cuda is not there", "this LibTorch was built without CUDA")
        self.add(FAKES / "libtorch_cuda.so")
        result = subprocess.run(command, capture_output=True, text=True, timeout=60,
                                env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)})
        self.assertEqual(result.returncode, 2)
        self.check(result.stderr, "accelerator cuda is not there", "there is no driver of NVIDIA", "container toolkit")


class TestDevices(Case):
    def setUp(self):
        super().setUp()
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1", NVML)

    def test_one_that_another_process_has_is_not_usable(self):
        """The process that asks can still fork: it has not started the driver."""
        found = self.run_case("usable")
        self.assertEqual((found["error"], found["usable"], found["is_driver_started"]), ("", [0, 1], False))
        self.assertEqual(self.run_case("usable", FAKE_OCCUPIED="GPU-fake")["usable"], [1])
        self.assertEqual(self.run_case("usable", FAKE_OCCUPIED="1")["usable"], [0])
        self.assertEqual(self.run_case("usable", FAKE_START="803")["usable"], [])
        self.assertEqual(self.run_case("usable", FAKE_MIG="1", FAKE_OCCUPIED="MIG-fake-2")["usable"], [0, 2])

    def test_whole_devices_are_not_hidden(self):
        found = self.run_case("rank 2 1")
        self.assertEqual((found["error"], found["visible"], found["index"]), ("", "", 1))
        self.assertEqual(self.run_case("rank GPU-fa 0", CUDA_VISIBLE_DEVICES="1,0")["index"], 1)

    def test_a_rank_on_a_part_of_a_device_sees_it_alone(self):
        for rank, part in enumerate(("MIG-fake-0", "MIG-fake-2", "1")):
            found = self.run_case(f"rank -1 {rank}", FAKE_MIG="1")
            self.assertEqual((found["error"], found["visible"], found["index"]), ("", part, 0))
        found = self.run_case("rank MIG-fake-2 0", FAKE_MIG="1", CUDA_VISIBLE_DEVICES="0")
        self.assertEqual((found["error"], found["visible"]), ("", "MIG-fake-2"))
        self.check(self.run_case("rank MIG-other 0", FAKE_MIG="1")["error"], "no or more than one device is called MIG-other",
                   "MIG-fake-0, MIG-fake-2, 1")

    def test_expandable_segments_are_asked_for_before_the_library_is_loaded(self):
        self.assertEqual(self.run_case("load")["settings"], "")
        self.check(self.run_case("late")["stderr"], "expandable_segments = true has no effect", "loaded already")
        found = self.run_case("segments")
        self.assertEqual((found["error"], found["settings"], found["stderr"]), ("", "expandable_segments:True", ""))
        for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
            self.assertEqual(self.run_case("segments", **{variable: "max_split_size_mb:64"})["settings"],
                             "max_split_size_mb:64,expandable_segments:True")
            self.assertEqual(self.run_case("segments", **{variable: "expandable_segments:False"})["settings"],
                             "expandable_segments:False")


class TestGpuCase(Case):
    def test_says_that_there_is_no_gpu(self):
        self.add(FAKES / "libtorch_cuda.so")
        for part in ("kernels", "nccl", "speed", "steps"):
            result = subprocess.run([BUILD / "bin/gpu_case", part], capture_output=True, text=True, timeout=60,
                                    env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)})
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.check(result.stderr, "there is no driver of NVIDIA")


class TestHostWaits(Case):
    def test_are_the_calls_that_return_when_the_device_is_done(self):
        self.add(FAKES / "libcupti.so.13")
        found = self.run_case("waits cudaStreamSynchronize cudaMemcpyAsync cudaStreamSynchronize_ptsz cudaEventSynchronize cudaEventQuery "
                              "cudaMemcpy cudaDeviceSynchronize cudaLaunchKernel")
        self.assertEqual(found["waits"], {"counted": {"cudaStreamSynchronize": 2, "cudaEventSynchronize": 1, "cudaMemcpy": 1,
                                                      "cudaDeviceSynchronize": 1}, "counted_after_the_end": {}}, found)

    def test_cannot_be_counted_beside_a_profiler(self):
        self.add(FAKES / "libcupti.so.13")
        self.check(self.run_case("waits", FAKE_CUPTI="39")["error"], "cuptiSubscribe: error 39 of CUPTI")


class TestPlugin(Case):
    def setUp(self):
        super().setUp()
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1")

    def file_that_says(self, versions):
        path = self.folder / "plugin.so"
        path.write_text(f"{MARK}{versions};")
        return path

    def test_is_loaded_where_it_fits(self):
        found = self.run_case("load", FAKES / "liblockstep_cuda_fake.so")
        self.assertEqual((found["error"], found["has_plugin"]), ("", True))

    def test_is_not_needed(self):
        found = self.run_case("load")
        self.assertEqual((found["error"], found["has_plugin"]), ("", False))

    def test_that_does_not_fit_is_refused(self):
        torch = (FAKES / "liblockstep_cuda_fake.so").read_bytes().partition(MARK.encode())[2].split(b";")[0].decode().split()[0]
        for versions, parts in {
            "torch=2.7 cuda=13 nccl=2.29.7": ("another LibTorch", "expected LibTorch 2.7", "got LibTorch 2."),
            f"{torch} cuda=12 nccl=2.29.7": ("another CUDA", "expected CUDA 12", "got CUDA 13"),
            f"{torch} cuda=13 nccl=2.28.9": ("another NCCL", "expected a LibTorch that was built with NCCL 2.28.9", "one of NCCL 2.29.7"),
            f"{torch} cuda=13 nccl=2.29.7": ("cannot be loaded", "plugin.so"),  # it is no library
        }.items():
            with self.subTest(versions):
                self.check(self.error(plugin=self.file_that_says(versions)), *parts, "make cuda", str(self.folder / "plugin.so"))
        self.check(self.error(plugin=FAKES / "liblockstep_cuda_fake.so", FAKE_NCCL="22805"), "NCCL's library is older than its header",
                   "expected NCCL 2.29.7", "got NCCL 2.28.5", "LD_PRELOAD")
        self.check(self.error(plugin=FAKES / "libcuda.so.1"), "this is not lockstep's library for CUDA")


class TestCpuUsers(Case):
    def test_neither_load_nor_carry_cuda(self):
        """With a driver and LibTorch's library for CUDA at hand: nobody who trains on CPUs opens them."""
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1", NVML)
        plugin = FAKES / "liblockstep_cuda_fake.so"
        runs = {"without": [], "with": []}
        for _ in range(5):
            for name, file in (("without", "/none"), ("with", plugin)):
                found = self.run_case("cpu", file)
                self.assertEqual(found["error"], "")
                for library in found["mapped"]:
                    self.assertNotRegex(library, r"cuda|nccl|nvidia")
                runs[name].append(found["rss_bytes"])
        without, with_plugin = min(runs["without"]), min(runs["with"])
        self.assertLess(abs(with_plugin - without), 4 << 20, runs)
        needed = subprocess.run(["readelf", "-d", BUILD / "lib/liblockstep.so"], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(needed, r"NEEDED.*(cuda|nccl)")


class TestBuiltLibrary(Case):
    """The real library, where it was built."""

    def test_finds_nothing_of_cuda_in_a_fake_one(self):
        """An error that names what is missing, and no crash."""
        self.add(FAKES / "libtorch_cuda.so", FAKES / "libcuda.so.1")
        said = PLUGIN.read_bytes().partition(MARK.encode())[2].split(b";")[0].decode()
        self.assertRegex(said, r"^torch=2\.\d+ cuda=\d+ nccl=2\.\d+\.\d+$")
        self.check(self.error(plugin=PLUGIN), str(PLUGIN), "liblockstep_cuda.so")

    def test_needs_no_library_of_cuda_by_name(self):
        """It takes what LibTorch has loaded, of whatever folder that is."""
        needed = subprocess.run(["readelf", "-d", PLUGIN], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(needed, r"NEEDED.*(cuda|nccl|torch|c10)")


if __name__ == "__main__":
    unittest.main()
