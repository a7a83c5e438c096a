// For the tests of the C functions: handles that free themselves, and keys and addresses drawn from a seed.
// host only
#pragma once

#include <gtest/gtest.h>
#include <sluice/sluice.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/flow_key.h"

namespace sluice::api_test {

struct Free {
  void operator()(sluice_acl* p) const { sluice_acl_free(p); }
  void operator()(sluice_fib* p) const { sluice_fib_free(p); }
  void operator()(sluice_errors* p) const { sluice_errors_free(p); }
  void operator()(sluice_rule* p) const { sluice_rule_free(p); }
  void operator()(sluice_device* p) const { sluice_device_free(p); }
  void operator()(sluice_channel* p) const { sluice_channel_free(p); }
  void operator()(sluice_resident* p) const { sluice_resident_free(p); }
  void operator()(sluice_graph* p) const { sluice_graph_free(p); }
};
template <typename T>
using Handle = std::unique_ptr<T, Free>;

// The errors of a call: give &errors, then look.
class Errors {
 public:
  ~Errors() { sluice_errors_free(list_); }
  Errors() = default;
  Errors(const Errors&) = delete;
  Errors& operator=(const Errors&) = delete;
  sluice_errors** operator&() {
    sluice_errors_free(list_);
    list_ = nullptr;
    return &list_;
  }
  std::string text() const { return sluice_errors_text(list_); }
  size_t count() const { return sluice_errors_count(list_); }
  const sluice_error& at(size_t i) const { return *sluice_errors_at(list_, i); }

 private:
  sluice_errors* list_ = nullptr;
};

inline Handle<sluice_acl> acl_of(std::string_view text, const char* algorithm = nullptr, bool count = false) {
  sluice_acl_options options = SLUICE_ACL_OPTIONS_INIT;
  options.algorithm = algorithm;
  options.count = count ? 1 : 0;
  Errors errors;
  Handle<sluice_acl> acl(sluice_acl_read(text.data(), text.size(), "test.acl", &options, &errors));
  EXPECT_NE(acl, nullptr) << errors.text();
  return acl;
}

inline Handle<sluice_fib> fib_of(std::string_view text, const char* four = nullptr, const char* six = nullptr) {
  sluice_fib_options options = SLUICE_FIB_OPTIONS_INIT;
  options.algorithm4 = four;
  options.algorithm6 = six;
  Errors errors;
  Handle<sluice_fib> fib(sluice_fib_read(text.data(), text.size(), "test.routes", &options, &errors));
  EXPECT_NE(fib, nullptr) << errors.text();
  return fib;
}

inline std::vector<sluice_key> keys_of(const std::vector<FlowKey>& from) {
  std::vector<sluice_key> keys(from.size());
  for (size_t i = 0; i < from.size(); ++i) std::memcpy(&keys[i], &from[i], sizeof keys[i]);
  return keys;
}

inline std::vector<sluice_match> classify(const sluice_acl* acl, const std::vector<sluice_key>& keys) {
  std::vector<sluice_match> out(keys.size());
  EXPECT_NE(sluice_acl_classify(acl, keys.data(), keys.size(), out.data()), 0u);
  return out;
}

// A TCP key of IPv4.
inline sluice_key tcp4(uint32_t src, uint32_t dst, uint16_t port) {
  sluice_key key{};
  key.family = 4;
  key.src_lo = src;
  key.dst_lo = dst;
  key.protocol = 6;
  key.src_port = 1234;
  key.dst_port = port;
  key.bits = SLUICE_KEY_PORTS;
  key.bytes = 100;
  return key;
}

}  // namespace sluice::api_test
