#!/usr/bin/env python3
"""Packs what a build folder installs into a wheel for pip: library, headers, CMake files and the command.

Usage: tools/make_wheel.py BUILD_DIR [OUT_DIR]   (OUT_DIR: build/packages)
The wheel belongs to one minor version of torch, that of the build, beside which pip places it: programs and libraries find
LibTorch by relative paths. What they need beyond that and beyond what every Linux has, it carries.
"""
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[1]
# Of every Linux for which manylinux wheels are, by the policies of auditwheel.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|z|stdc\+\+|gcc_s))\.so\.\d+$")
TORCH = re.compile(r"lib(torch.*|c10.*|gomp)\.so")
OLDEST_PYTHON = "3.10"


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def cached(build, name):
    found = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    if not found:
        sys.exit(f"make_wheel: {build}/CMakeCache.txt has no {name}: configure it first (cmake --preset release)")
    return found.group(1)


def torch_version(torch):
    text = (torch / "include/torch/headeronly/version.h").read_text()
    return ".".join(re.search(rf"TORCH_VERSION_{part} (\d+)", text).group(1) for part in ("MAJOR", "MINOR"))


def keep_one_name(libraries):
    """Of a library and the links to it, the file by the name that programs ask for: a zip has no links."""
    renamed = {}
    for file in libraries.glob("*.so*"):
        if file.is_symlink():
            file.unlink()
    for file in libraries.glob("*.so*"):
        soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", file))
        if soname and soname.group(1) != file.name:
            renamed[file.name] = soname.group(1)
            file.rename(libraries / soname.group(1))
    for file in libraries.glob("cmake/lockstep/lockstepTargets-*.cmake"):
        text = file.read_text()
        for old, new in renamed.items():
            text = text.replace(old, new)
        file.write_text(text)


def needed_by(file):
    return set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", file)))


def carry_other_libraries(libraries, torch):
    """Copies what the libraries need and may be missing elsewhere, and returns those files."""
    ours = sorted(libraries.glob("*.so*"))
    direct = set().union(*(needed_by(file) for file in ours)) - {file.name for file in ours}
    carried = {}
    for file in ours:
        listed = run("ldd", file, env=os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{torch / 'lib'}"})
        for name, path in re.findall(r"(\S+) => (/\S+)", listed):
            if not (SYSTEM.match(name) or TORCH.match(name) or (libraries / name).exists()):
                carried[name] = pathlib.Path(path).resolve()
    for name, path in carried.items():
        if name not in direct and any(name in needed_by(other) for other in carried.values()):
            sys.exit(f"make_wheel: {name} is needed by another library that is carried, which would not find it")
        shutil.copyfile(path, libraries / name)
        (libraries / name).chmod(0o755)
    return carried


def licence_of(library):
    """Debian's file of licences of the package that has this library, or None."""
    for path in {library, pathlib.Path(str(library).removeprefix("/usr"))}:
        found = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True) if shutil.which("dpkg-query") else None
        if found and found.returncode == 0:
            licence = pathlib.Path("/usr/share/doc", found.stdout.split(":")[0], "copyright")
            return licence if licence.exists() else None
    return None


def add_licences(folder, carried):
    folder.mkdir(parents=True)
    shutil.copyfile(SOURCE / "LICENSE", folder / "LICENSE")
    for name, path in sorted(carried.items()):
        licence = licence_of(path)
        if licence is None:
            print(f"make_wheel: the licence of {path}, which the wheel carries, was not found", file=sys.stderr)
        else:
            shutil.copyfile(licence, folder / f"{name}.txt")


def metadata(version, torch):
    return f"""Metadata-Version: 2.1
Name: lockstep
Version: {version}
Summary: Distributed training for C++ programs on LibTorch
License: Apache-2.0
Requires-Python: >={OLDEST_PYTHON}
Requires-Dist: torch=={torch}.*
Description-Content-Type: text/markdown

{(SOURCE / "README.md").read_text()}"""


def platform_tag():
    """The system that was built on is the oldest that is promised: what was linked may need its versions of symbols."""
    libc, version = platform.libc_ver()
    if libc != "glibc":
        return f"linux_{platform.machine()}"
    return f"manylinux_{version.replace('.', '_')}_{platform.machine()}"


def hash_of(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def pack(stage, wheel, record):
    date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 315532800)), 315532800))[:6]
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

        for file in sorted(path for path in stage.rglob("*") if path.is_file()):
            name, data = file.relative_to(stage).as_posix(), file.read_bytes()
            add(name, data, 0o755 if os.access(file, os.X_OK) else 0o644)
            lines.append(f"{name},{hash_of(data)},{len(data)}\n")
        add(record, "".join(lines) + f"{record},,\n", 0o644)


def make_wheel(build, out):
    torch = pathlib.Path(cached(build, "LOCKSTEP_TORCH_ROOT"))
    version, torch_minor = cached(build, "CMAKE_PROJECT_VERSION"), torch_version(torch)
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder)
        root, info = stage / "lockstep", stage / f"lockstep-{version}.dist-info"
        run("cmake", "--install", build, "--prefix", root, "--strip")
        run("cmake", "-D", f"ROOT={root}", "-D", f"TORCH={torch}", "-P", SOURCE / "cmake/make_relocatable.cmake")
        libraries = next(root.rglob("liblockstep.so")).parent
        keep_one_name(libraries)
        carried = carry_other_libraries(libraries, torch)
        for file in (SOURCE / "tools/wheel").glob("*.py"):
            shutil.copyfile(file, root / file.name)
        (root / "_built.py").write_text(f'VERSION = "{version}"\nTORCH_VERSION = "{torch_minor}"\n')
        scripts = stage / f"lockstep-{version}.data/scripts"
        scripts.mkdir(parents=True)
        shutil.copy(SOURCE / "tools/wheel/lockstep", scripts)
        add_licences(info / "licenses", carried)
        (info / "METADATA").write_text(metadata(version, torch_minor))
        tag = f"py3-none-{platform_tag()}"
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n")
        out.mkdir(parents=True, exist_ok=True)
        wheel = out / f"lockstep-{version}-{tag}.whl"
        pack(stage, wheel, f"{info.name}/RECORD")
    print(wheel)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    make_wheel(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else SOURCE / "build/packages"))
