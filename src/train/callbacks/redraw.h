// New random values for a layer's parameters.
#pragma once

#include <string>

#include <lockstep/torch.h>

namespace lockstep::detail {

/// What the constructor of `layer` could have drawn for its own parameter `name`, from torch's generator;
/// undefined for layers that are not known to draw.
at::Tensor redrawn(const torch::nn::Module& layer, const std::string& name);

}  // namespace lockstep::detail
