// Classes of service as text -> QosModel.
//
//   class NAME { key }        the first line is class 0, and so on; strict classes go first, in this order
//   port rate RATE [burst BYTES]
//
//   key = dscp LIST                       codepoints by number or name (ef, af41, cs6, va, le, default), joined by
//                                         commas; LOW-HIGH; "others": all that no class names
//       | mark LIST                       marks that access lists gave, 1 and up, or LOW-HIGH; before any codepoint
//       | strict | weight N               strict priority, or a share (1 unless said)
//       | rate RATE | burst BYTES         shaped
//       | limit N                         packets that wait at most
//       | red MIN MAX PERCENT             random early detection, PERCENT at MAX
//       | police srtcm CIR CBS EBS        RFC 2697
//       | police trtcm CIR CBS PIR PBS    RFC 2698
//       | remark COLOR DSCP               green, yellow or red; red packets are dropped unless they are remarked
//   RATE = a number with bps, kbps, Mbps or Gbps; # to the end of the line is a comment
//
// Codepoints that nobody names are of the last class.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "qos/qos_model.h"

namespace sluice {

// Errors: every line that is wrong; a codepoint or mark of two classes; no class, or more than kMaxQosClasses.
Result<QosModel> parse_qos(std::string_view text, const std::string& file);

// What parse_qos reads back as the same model.
std::string format_qos(const QosModel& model);

// Bits per second: "10Mbps", "2.5Gbps". False: not such a text, not a whole number of bits, or more than 400 Gbit/s.
bool parse_rate_bps(std::string_view text, uint64_t* bps);

}  // namespace sluice
