// A persistent channel: resident kernels of a GPU answer keys while the program goes on; without a GPU, host threads do.
//
//   find_package(sluice REQUIRED)  target_link_libraries(channel sluice::sluice)     (CMakeLists.txt)
//   ./channel edge.acl
//
// Keeps several bursts on their way, and compares every answer with that of the list itself.
#include <sluice/sluice.h>

#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

namespace {

struct Free {
  void operator()(sluice_acl* p) const { sluice_acl_free(p); }
  void operator()(sluice_device* p) const { sluice_device_free(p); }
  void operator()(sluice_channel* p) const { sluice_channel_free(p); }
};
template <typename T>
using Handle = std::unique_ptr<T, Free>;

int fail(sluice_errors* errors) {
  std::fputs(sluice_errors_text(errors), stderr);
  sluice_errors_free(errors);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s LIST\n", argv[0]);
    return 2;
  }
  sluice_errors* errors = nullptr;
  const Handle<sluice_acl> acl(sluice_acl_open(argv[1], nullptr, &errors));
  if (acl == nullptr) return fail(errors);
  Handle<sluice_device> device(sluice_device_open("cuda", nullptr));
  if (device == nullptr) device.reset(sluice_device_open("emu", &errors));
  if (device == nullptr) return fail(errors);

  sluice_channel_options options = SLUICE_CHANNEL_OPTIONS_INIT;
  options.mode = SLUICE_PERSISTENT;
  options.burst = 64;
  const Handle<sluice_channel> channel(sluice_channel_open_acl(device.get(), acl.get(), &options, &errors));
  if (channel == nullptr) return fail(errors);

  std::vector<sluice_key> keys(10'000);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i].family = 4;
    keys[i].src_lo = 0x0a000000 + i;
    keys[i].dst_lo = 0xc0000200 + i % 512;
    keys[i].protocol = i % 3 == 0 ? 17 : 6;
    keys[i].bits = SLUICE_KEY_PORTS;
    keys[i].src_port = static_cast<uint16_t>(1024 + i);
    keys[i].dst_port = i % 5 == 0 ? 53 : i % 2 == 0 ? 80 : 443;
  }
  std::vector<sluice_match> matches(keys.size());
  for (size_t sent = 0, got = 0; got < keys.size();) {
    // What is not taken is offered again; meanwhile the program may do other things.
    const size_t left = keys.size() - sent;
    sent += sluice_channel_submit(channel.get(), keys.data() + sent, left < 64 ? left : 64);
    got += sluice_channel_poll(channel.get(), matches.data() + got, nullptr, keys.size() - got);
  }

  std::vector<sluice_match> expected(keys.size());
  sluice_acl_classify(acl.get(), keys.data(), keys.size(), expected.data());
  size_t permitted = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (matches[i].rule != expected[i].rule || matches[i].action != expected[i].action) {
      std::fprintf(stderr, "key %zu: rule %u, not %u\n", i, matches[i].rule, expected[i].rule);
      return 1;
    }
    permitted += matches[i].action == SLUICE_PERMIT;
  }
  if (*sluice_channel_failure(channel.get()) != '\0') {
    std::fprintf(stderr, "%s: %s\n", sluice_device_name(device.get()), sluice_channel_failure(channel.get()));
    return 1;
  }
  std::printf("%zu of %zu permitted\n", permitted, keys.size());
  return 0;
}
