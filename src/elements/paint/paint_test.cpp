#include <gtest/gtest.h>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

TEST(PaintSwitch, SendsEachPaintToItsOutput) {
  const std::string three = "s :: PaintSwitch; s[1] -> Discard; s[2] -> Discard;";
  expect({1}).through("s", three).leaves_by(0);
  expect({1}).painted(2).through("s", three).leaves_by(2);
  expect({1}).through("Paint(1) -> s", three).leaves_by(1);
  expect({1}).through("Paint(3) -> s", three).drops(DropReason::kUnconnectedOutput);
  expect({1}).through("Paint(255) -> s", three).drops(DropReason::kUnconnectedOutput);
}

}  // namespace
}  // namespace sluice
