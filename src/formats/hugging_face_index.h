// model.safetensors.index.json: how Hugging Face's readers find tensors in several files.
#pragma once

#include <map>
#include <string>

#include "formats/checkpoint_manifest.h"

namespace lockstep::detail {

/// Names and texts of the index files: one for each entry of the state whose tensors lie in several files,
/// and each tensor whole in one of them.
LOCKSTEP_API std::map<std::string, std::string> hugging_face_indices(const Manifest& manifest);

}  // namespace lockstep::detail
