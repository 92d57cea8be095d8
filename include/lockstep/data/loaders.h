// The loaders of one stage of evaluation: none, one, or several that are run one after the other.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/data/loader.h>

namespace lockstep {

/// Loaders without their batch type.
using LoaderList = std::vector<std::shared_ptr<AnyLoader>>;

/// What is evaluated in one pass: `trainer.validate(model, {common, rare})`. All give the same type of batch;
/// their order is that of StepContext::dataloader_idx().
template <class Batch>
class Loaders {
 public:
  Loaders() = default;
  Loaders(std::nullopt_t) {}
  Loaders(Loader<Batch> loader) { loaders_.push_back(std::move(loader)); }
  Loaders(std::optional<Loader<Batch>> loader) {
    if (loader) loaders_.push_back(*std::move(loader));
  }
  Loaders(std::vector<Loader<Batch>> loaders) : loaders_(std::move(loaders)) {}
  Loaders(std::initializer_list<Loader<Batch>> loaders) : loaders_(loaders) {}

  std::size_t size() const { return loaders_.size(); }
  bool empty() const { return loaders_.empty(); }
  const Loader<Batch>& operator[](std::size_t index) const { return loaders_[index]; }
  auto begin() const { return loaders_.begin(); }
  auto end() const { return loaders_.end(); }

  LoaderList any() const { return {loaders_.begin(), loaders_.end()}; }

 private:
  std::vector<Loader<Batch>> loaders_;
};

}  // namespace lockstep
