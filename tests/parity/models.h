// The models of the golden cases, by their types.
#pragma once

#include "golden_module.h"

namespace parity {

/// The model that the case asks for. Borrows `golden` and `record`.
/// @throws DataError naming the types that there are
std::shared_ptr<GoldenModule> make_model(const Case& golden, Record& record);

std::shared_ptr<GoldenModule> make_mlp(const Case& golden, Record& record);
std::shared_ptr<GoldenModule> make_convnet_bn(const Case& golden, Record& record);
std::shared_ptr<GoldenModule> make_transformer_lm(const Case& golden, Record& record);

}  // namespace parity
