// Trees of primitives as a program of comparisons.
#include <algorithm>

#include "elements/ip_filter/pattern.h"

namespace sluice {
namespace {

// Writes steps from the last to the first, so that targets exist when they are needed.
class Emitter {
 public:
  explicit Emitter(const std::vector<PatternNode>& nodes) : nodes_(nodes) {}

  // Where a packet goes to have `node` decided, if it then goes to yes or no. Numbers count from the end until
  // finish().
  uint16_t emit(uint32_t node, uint16_t yes, uint16_t no) {
    const PatternNode& n = nodes_[node];
    switch (n.kind) {
      case PatternNode::Kind::kConst:
        return n.value ? yes : no;
      case PatternNode::Kind::kTest:
        return step(n.test, yes, no);
      case PatternNode::Kind::kPrefix:
        return prefix(n, yes, no);
      case PatternNode::Kind::kNot:
        return emit(n.a, no, yes);
      case PatternNode::Kind::kAnd:
        return emit(n.a, emit(n.b, yes, no), no);
      case PatternNode::Kind::kOr:
        return emit(n.a, yes, emit(n.b, yes, no));
      case PatternNode::Kind::kIf: {
        const uint16_t then = emit(n.b, yes, no), otherwise = emit(n.c, yes, no);
        return emit(n.a, then, otherwise);
      }
    }
    return no;
  }

  std::vector<PatternStep> finish(uint16_t& first) {
    const auto last = static_cast<uint16_t>(steps_.size() - 1);
    auto turn = [&](uint16_t target) {
      return (target & PatternStep::kDone) != 0 ? target : static_cast<uint16_t>(last - target);
    };
    std::reverse(steps_.begin(), steps_.end());
    for (PatternStep& s : steps_) {
      s.yes = turn(s.yes);
      s.no = turn(s.no);
    }
    first = turn(first);
    return std::move(steps_);
  }

 private:
  uint16_t step(PatternStep s, uint16_t yes, uint16_t no) {
    s.yes = yes;
    s.no = no;
    steps_.push_back(s);
    return static_cast<uint16_t>(steps_.size() - 1);
  }

  uint16_t prefix(const PatternNode& n, uint16_t yes, uint16_t no) {
    const IpAddress& a = n.prefix.address;
    const unsigned width = a.family == 4 ? 32 : 128, words = width / 32;
    uint16_t at = yes;
    for (unsigned w = words; w-- > 0;) {
      const unsigned begins = w * 32;
      if (n.prefix.length <= begins) continue;
      const uint32_t mask = high_mask32(std::min(n.prefix.length - begins, 32u));
      const unsigned place = w + (4 - words);  // IPv4 lies in the last word
      const uint64_t half = place < 2 ? a.hi : a.lo;
      const auto value = static_cast<uint32_t>(place % 2 == 0 ? half >> 32 : half) & mask;
      PatternStep s{};
      s.source = PatternSource::kAddress;
      s.mask = mask;
      s.low = value;
      s.offset = static_cast<uint16_t>(place + (n.source ? 0 : 4));
      at = step(s, at, no);
    }
    PatternStep family{};
    family.source = PatternSource::kFamily;
    family.mask = ~0u;
    family.low = a.family;
    return step(family, at, no);
  }

  const std::vector<PatternNode>& nodes_;
  std::vector<PatternStep> steps_;
};

}  // namespace

std::vector<PatternStep> PatternList::program(uint32_t* first) const {
  Emitter emitter(nodes_);
  uint16_t at = PatternStep::kNoMatch;
  for (size_t i = patterns_.size(); i-- > 0;) {
    at = emitter.emit(patterns_[i].root, static_cast<uint16_t>(PatternStep::kDone | patterns_[i].output), at);
  }
  auto steps = emitter.finish(at);
  *first = at;
  return steps;
}

}  // namespace sluice
