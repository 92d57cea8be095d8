// Takes the place of the JPEG decoder where the library is built without libjpeg.
#include "formats/image_decoders.h"

namespace lockstep::detail {

Expected<Raster> decode_jpeg(std::span<const std::byte>, std::uint64_t) {
  return Unexpected{"a JPEG, for which this build has no libjpeg"};
}

}  // namespace lockstep::detail
