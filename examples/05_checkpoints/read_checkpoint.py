"""Reads any checkpoint of lockstep with nothing but numpy: read_checkpoint.py FOLDER prints its tensors."""
import json
import pathlib
import sys

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}


def value_of(value, tensors):
    """What a value of the manifest's trees stands for; strings that are no UTF-8 as Python has file names."""
    if isinstance(value, list):
        return [value_of(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "tree":
        return {name: value_of(each, tensors) for name, each in content.items()}
    if kind == "tensor":
        return tensors[content]
    if kind == "number":
        return float(content)
    raw = bytes.fromhex(content)
    return raw if kind == "bytes" else raw.decode("utf-8", "surrogateescape")


def read_checkpoint(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    if (manifest["format"], manifest["format_version"]) != ("lockstep-checkpoint", 2):
        raise ValueError(f"{folder} is of another format")
    tensors = {}
    for path, tensor in manifest["tensors"].items():
        runs = [np.fromfile(folder / part["file"], DTYPES[tensor["dtype"]], part["elements"], offset=part["offset"])
                for part in tensor["parts"]]
        tensors[path] = np.concatenate(runs).reshape(tensor["shape"])
    state = {name: value_of(value, tensors) for name, value in manifest["state"].items()}
    return tensors, state, value_of(manifest["ranks"], tensors)


if __name__ == "__main__":
    for path, tensor in read_checkpoint(pathlib.Path(sys.argv[1]))[0].items():
        print(path, tensor.dtype, list(tensor.shape))
