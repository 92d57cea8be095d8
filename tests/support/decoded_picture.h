// Pictures for tests, decoded.
#pragma once

#include <span>
#include <string>

#include <gtest/gtest.h>
#include <lockstep/formats/image.h>

#include "support/image_text.h"

namespace lockstep::test {

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// tests/formats/images/NAME, which must be a picture.
inline Image decoded(const std::string& name, ImageMode mode) {
  const auto image = decode_image(bytes_of(picture(name)), {.mode = mode});
  EXPECT_TRUE(image) << name << ": " << image.error();
  return image.value_or({});
}

}  // namespace lockstep::test
