// Takes the place of the PNG decoder where the library is built without libpng.
#include "formats/image_decoders.h"

namespace lockstep::detail {

Expected<Raster> decode_png(std::span<const std::byte>, std::uint64_t) {
  return Unexpected{"a PNG, for which this build has no libpng"};
}

}  // namespace lockstep::detail
