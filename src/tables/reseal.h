// For tests and fuzz targets: an image whose bytes were changed gets the checksum of what it is now, so that the checks
// behind it are what stands in the way. Host only.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "tables/image.h"

namespace sluice {

// Precondition: as many bytes as a header has.
inline void reseal(std::span<std::byte> image) {
  ImageHeader header;
  std::memcpy(&header, image.data(), sizeof header);
  header.checksum = image_checksum(header, image.subspan(sizeof header));
  std::memcpy(image.data(), &header, sizeof header);
}

}  // namespace sluice
