// host only
// For tests: two network namespaces with cables between them, gone with the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "ports/testing/net_namespace.h"

namespace sluice::testing {

// `Base`: a class of tests. A test is skipped where there are no namespaces.
template <typename Base>
class TwoHosts : public Base {
 protected:
  void SetUp() override {
    if (!NetNamespace::why_none().empty()) GTEST_SKIP() << "no network namespaces here: " << NetNamespace::why_none();
    for (auto* place : {&here_, &there_}) {
      auto made = NetNamespace::create();
      ASSERT_TRUE(made.ok()) << to_string(made.error());
      *place = std::make_unique<NetNamespace>(std::move(*made));
    }
  }
  // Whether SetUp has made both; for the SetUp of a class of tests.
  bool ready() const { return there_ != nullptr; }

  // An interface `near` here, whose other end is `far` there.
  void cable(const std::string& near, const std::string& far) {
    auto made = NetNamespace::veth(*here_, near, *there_, far);
    ASSERT_TRUE(made.ok()) << to_string(made.error());
  }
  // Here.
  void run(const std::string& command) {
    auto done = here_->run(command);
    ASSERT_TRUE(done.ok()) << to_string(done.error());
  }
  // At an interface that is there.
  Wire wire(const std::string& interface) {
    auto made = Wire::open(*there_, interface);
    SLUICE_CHECK(made.ok());
    return std::move(*made);
  }

  std::unique_ptr<NetNamespace> here_, there_;
};

}  // namespace sluice::testing
