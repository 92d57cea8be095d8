// Pictures for tests, decoded.
#pragma once

#include <string>

#include <gtest/gtest.h>
#include <lockstep/formats/image.h>

#include "support/bytes.h"
#include "support/image_text.h"

namespace lockstep::test {

/// tests/formats/images/NAME, which must be a picture.
inline Image decoded(const std::string& name, ImageMode mode) {
  const auto image = decode_image(bytes_of(picture(name)), {.mode = mode});
  EXPECT_TRUE(image) << name << ": " << image.error();
  return image.value_or({});
}

}  // namespace lockstep::test
