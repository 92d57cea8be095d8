// A locale whose numbers have a comma, as the programs of many countries have; few machines have one installed.
#pragma once

#include <clocale>
#include <fstream>
#include <string_view>

#include <lockstep/base/env.h>

#include "support/temporary_folder.h"

namespace lockstep::test {

/// The locale of this process, as long as it lives.
class DecimalComma {
 public:
  DecimalComma() {
    using namespace std::string_view_literals;
    std::filesystem::create_directory(folder_ / "xx_XX");
    // The decimal point, the separator of thousands and its groups, as localedef writes them.
    std::ofstream(folder_ / "xx_XX" / "LC_NUMERIC", std::ios::binary)
        << "\x14\x11\x03\x20\x06\0\0\0\x20\0\0\0\x22\0\0\0\x24\0\0\0\x28\0\0\0\x2c\0\0\0\x30\0\0\0"
           ",\0.\0\x03\x03\0\0,\0\0\0.\0\0\0UTF-8\0"sv;
    env::set("LOCPATH", (folder_ / "xx_XX").parent_path().string());
    is_there_ = std::setlocale(LC_NUMERIC, "xx_XX") != nullptr;
    env::unset("LOCPATH");
  }
  ~DecimalComma() { std::setlocale(LC_NUMERIC, "C"); }
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;

  bool is_there() const { return is_there_; }

 private:
  TemporaryFolder folder_;
  bool is_there_ = false;
};

}  // namespace lockstep::test
