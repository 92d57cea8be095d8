// The optimizers this module has, made from checked options, and the errors of its checks.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_options.h>

namespace lockstep {
class Optimizer;
class PieceExchange;
struct NamedParameter;
}  // namespace lockstep

namespace lockstep::detail {

/// @throws ConfigError of module optim
[[noreturn]] void refuse(std::string what, std::string expected, std::string got, std::string hint = "");

/// @throws ConfigError if `allowed` is false: `field` (such as "AdamW.lr") is `value`, where `expected` is
/// wanted
void require(bool allowed, const std::string& field, double value, const std::string& expected);

/// require() that `value` is a finite number >= 0.
void require_not_negative(const std::string& field, double value);

/// require() that `value` lies in [0, 1].
void require_share(const std::string& field, double value);

/// `a, b, c, ... (12)`: the first few of many names, for an error's text.
std::string some_of(std::span<const std::string> names);

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
