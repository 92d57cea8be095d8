#include "metrics/refuse.h"

#include <utility>

#include <c10/util/StringUtil.h>

#include <lockstep/base/error.h>

namespace lockstep::metrics::detail {

void refuse_option(std::string what, std::string expected, std::string got) {
  throw ConfigError("metrics",
                    {.what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

void require_option(bool allowed, const std::string& what, double value, const std::string& expected) {
  if (!allowed) refuse_option(what, expected, c10::str(value));
}

void refuse_input(std::string what, std::string expected, std::string got) {
  throw DataError("metrics",
                  {.what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

void require_input(bool allowed, const std::string& what, const at::Tensor& value,
                   const std::string& expected) {
  if (!allowed) refuse_input(what, expected, text_of(value));
}

std::string text_of(const at::Tensor& tensor) {
  return tensor.defined() ? c10::str(tensor.scalar_type(), " ", tensor.sizes()) : "an undefined tensor";
}

}  // namespace lockstep::metrics::detail
