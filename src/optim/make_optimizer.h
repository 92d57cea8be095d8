// The optimizers this module has, made from checked options.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_options.h>
#include <lockstep/optim/piece_exchange.h>

namespace lockstep::detail {

/// @throws ConfigError naming the field and value that torch would refuse too
void validate(const SGD& options);
void validate(const Adam& options);
void validate(const AdamW& options);
void validate(const Adagrad& options);
void validate(const Lion& options);
void validate(const Lamb& options);
void validate(const Muon& options);
void validate(const LBFGS& options);

std::unique_ptr<Optimizer> make_optimizer(const SGD& options, std::vector<NamedParameter> parameters);
std::unique_ptr<Optimizer> make_optimizer(const Adam& options, std::vector<NamedParameter> parameters);
std::unique_ptr<Optimizer> make_optimizer(const AdamW& options, std::vector<NamedParameter> parameters);
std::unique_ptr<Optimizer> make_optimizer(const Adagrad& options, std::vector<NamedParameter> parameters);
std::unique_ptr<Optimizer> make_optimizer(const Lion& options, std::vector<NamedParameter> parameters);
std::unique_ptr<Optimizer> make_optimizer(const LBFGS& options, std::vector<NamedParameter> parameters);

/// `exchange`: null for whole tensors.
std::unique_ptr<Optimizer> make_optimizer(const Lamb& options, std::vector<NamedParameter> parameters,
                                          std::shared_ptr<PieceExchange> exchange);
std::unique_ptr<Optimizer> make_optimizer(const Muon& options, std::vector<NamedParameter> parameters,
                                          std::shared_ptr<PieceExchange> exchange);

}  // namespace lockstep::detail
