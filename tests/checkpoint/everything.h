// A state with a value of every kind.
#pragma once

#include <limits>

#include <lockstep/state/state_tree.h>
#include <lockstep/torch.h>

namespace lockstep::test {

inline StateTree everything() {
  StateTree model, part, state;
  model.set("net.0.weight", torch::arange(6).view({2, 3}).to(torch::kFloat));
  model.set("net.0.bias", torch::ones({2}, torch::kBFloat16));
  part.set("tensors", StateList(std::vector<at::Tensor>{torch::zeros({0}), torch::tensor(3)}));
  part.set("numbers", StateList(std::vector<double>{1.0, 0.1, std::numeric_limits<double>::infinity(),
                                                    -std::numeric_limits<double>::infinity()}));
  part.set("bytes", StateBytes{std::byte{0}, std::byte{255}, std::byte{16}});
  part.set("empty", StateTree());
  part.set("none", StateList());
  state.set("model", model);
  state.set("part-1.x_", part);
  state.set("integer", std::numeric_limits<std::int64_t>::min());
  state.set("whole", 2.0);
  state.set("flag", true);
  state.set("text", std::string("\"quoted\"\n"));
  state.set("latin-1", std::string("caf\xe9\0", 5));
  state.set("tensor", torch::tensor(1.5, torch::kDouble));
  return state;
}

}  // namespace lockstep::test
