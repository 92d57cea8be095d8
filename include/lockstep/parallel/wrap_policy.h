// WrapPolicy: which modules of a model become units, whose parameters are gathered together.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <variant>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// A choice of modules; FSDP's auto_wrap_policy. Parameters belong to the innermost module chosen that holds
/// them, those of no such module to the root; what modules share belongs to the root, too. As text (flags,
/// YAML): `repeated_blocks`, `none`, `min_num_params=1000000`, or names of types, `TransformerEncoderLayer`,
/// several with commas between.
class LOCKSTEP_API WrapPolicy {
 public:
  /// Whether a module becomes a unit.
  using Predicate = std::function<bool(const torch::nn::Module& module)>;

  /// Every block of a kind that stands beside others of its kind, such as the layers of a transformer; small
  /// ones (below 4,096 elements) excepted.
  WrapPolicy() = default;
  /// The modules for which it says so.
  template <std::predicate<const torch::nn::Module&> Function>
  WrapPolicy(Function predicate) : rule_(Predicate(std::move(predicate))) {}
  /// As text. @throws ConfigError naming what is accepted
  WrapPolicy(std::string_view text);
  WrapPolicy(const char* text) : WrapPolicy(std::string_view(text)) {}

  /// The whole model is one unit.
  static WrapPolicy none();
  /// FSDP's size-based policy: from the leaves up, every module that holds at least so many elements that no
  /// module inside of it has. Not ModuleList and ModuleDict, and nothing inside MultiheadAttention.
  static WrapPolicy min_num_params(std::int64_t elements);
  /// Modules of these types, by name with or without namespace and "Impl".
  static WrapPolicy type_names(std::vector<std::string> names);
  /// Modules of these types, those with these names ("layers.0.mlp"), and those whose names end so (".mlp").
  /// DeepSpeed's leaf_module.
  static WrapPolicy modules(std::vector<std::string> types, std::vector<std::string> names,
                            std::vector<std::string> name_suffixes);

  /// What the text would be; "own" for a predicate.
  std::string print() const;

  /// Whether it is a mistake to match nothing; the default and none() suit every model.
  bool must_match() const;

  /// Blocks that occur more than once in a list.
  struct RepeatedBlocks {};
  /// No units but the whole model.
  struct None {};
  /// Modules of at least so many parameters.
  struct MinNumParams {
    std::int64_t elements;  ///< parameters, at least
  };
  /// Modules of some types.
  struct TypeNames {
    std::vector<std::string> names;  ///< names of C++ types, with or without their namespaces
  };
  /// Modules by type, by dotted name, or by the end of it.
  struct Modules {
    std::vector<std::string> types, names, name_suffixes;  ///< any of them is enough
  };
  /// One of these rules.
  using Rule = std::variant<RepeatedBlocks, None, MinNumParams, TypeNames, Modules, Predicate>;
  /// The rule it was made with.
  const Rule& rule() const { return rule_; }

 private:
  Rule rule_ = RepeatedBlocks{};
};

namespace detail {
/// "Linear" of torch::nn::LinearImpl and the like.
LOCKSTEP_API std::string type_name(const std::type_info& type);

template <class Module>
struct ModuleClass {
  using type = Module;
};
template <class Holder>
requires requires { typename Holder::ContainedType; }
struct ModuleClass<Holder> {
  using type = typename Holder::ContainedType;
};
}  // namespace detail

/// A policy by types: `ls::types<nn::TransformerEncoderLayer, nn::TransformerDecoderLayer>()`; holders or
/// classes.
template <class... Modules>
WrapPolicy types() {
  return WrapPolicy::type_names({detail::type_name(typeid(typename detail::ModuleClass<Modules>::type))...});
}

template <>
struct LOCKSTEP_API OptionType<WrapPolicy> {
  static Expected<WrapPolicy> parse(std::string_view text);
  static std::string print(const WrapPolicy& value);
  static std::string accepted();
};

}  // namespace lockstep
