// The pass that writes what describes itself as JSON.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/option_visitor.h>

namespace lockstep::deepspeed {

/// Visits a described struct and makes an object of its members, one to a line. What has no value is left
/// out.
class JsonWriter final : public OptionVisitor {
 public:
  /// The object of what has been visited.
  std::string take();

  void visit_field(OptionField& field) override;
  void visit_group(std::string_view name, std::string_view help, const Members& members) override;
  void visit_choice(OptionChoice& choice) override;

 private:
  void add(std::string_view name, std::string_view value);
  void add_object(std::string_view name, const Members& members);

  std::string text_ = "{";
  int depth_ = 1;
  bool is_first_ = true;
};

}  // namespace lockstep::deepspeed
