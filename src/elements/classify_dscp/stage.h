// ClassifyDSCP: a class by differentiated services codepoint. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"
#include "qos/class_map.h"

namespace sluice {

// RFC 2474. The codepoint is the key's, so that one that was set before counts; what is not IP has codepoint 0. The
// paint becomes the class, which is the output.
struct ClassifyDscpStage {
  static constexpr FieldMask kReads = kFieldKey;
  static constexpr FieldMask kWrites = kFieldPaint;

  ClassMap map;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    p.paint = static_cast<uint8_t>(map.class_of(p.key.family != 0 ? p.key.dscp : 0));
    return p.paint;
  }
};

}  // namespace sluice
