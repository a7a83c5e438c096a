// host only
// Access lists and routes over columns of arrays.
#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

#include "api/classify.h"
#include "api/table.h"
#include "module.h"
#include "net/bytes.h"
#include "tensors.h"

namespace sluice::python {
namespace {

using api::OpenedAcl;
using api::OpenedFib;

// The columns of keys. Addresses of a row are of its family.
struct Keys {
  Column family, src, dst, src6, dst6, sport, dport, proto, flags, icmp, dscp, bits, bytes;
  uint8_t one_family = 4;  // where `family` is not given
  uint8_t one_bits = 0;    // where `bits` is not given
  size_t size = 0;

  explicit Keys(const nb::dict& columns) {
    auto take = [&](const char* name, unsigned width_bits, size_t width = 0, unsigned other = 0) {
      if (!columns.contains(name)) return Column();
      return Column(name, columns[name], width_bits, width, other);
    };
    family = take("family", 8);
    src = take("src", 32);
    dst = take("dst", 32);
    src6 = take("src6", 8, 16);
    dst6 = take("dst6", 8, 16);
    sport = take("sport", 16);
    dport = take("dport", 16);
    proto = take("proto", 8);
    flags = take("flags", 16, 0, 8);
    icmp = take("icmp", 16);
    dscp = take("dscp", 8);
    bits = take("bits", 8);
    bytes = take("bytes", 32);
    const Column* first = nullptr;
    for (const Column* c :
         {&src, &dst, &src6, &dst6, &family, &sport, &dport, &proto, &flags, &icmp, &dscp, &bits, &bytes}) {
      if (!*c) continue;
      if (first == nullptr) {
        first = c;
        size = c->size();
      } else if (c->size() != size) {
        wrong_value(std::string(c->name()) + " has " + std::to_string(c->size()) + " entries, and " + first->name() +
                    " has " + std::to_string(size));
      }
    }
    const auto pair = [](const Column& a, const char* as, const Column& b, const char* bs) {
      if (a && !b) wrong_value(std::string(bs) + " is missing beside " + as);
      if (b && !a) wrong_value(std::string(as) + " is missing beside " + bs);
      return a && b;
    };
    const bool four = pair(src, "src", dst, "dst");
    const bool six = pair(src6, "src6", dst6, "dst6");
    if (!four && !six) wrong_value("src and dst are missing: addresses as uint32, or as an array of (n, 16) uint8");
    if (!family && four && six) wrong_value("family is missing: it says which of src and src6 a row has");
    one_family = four ? 4 : 6;
    one_bits = sport || dport ? FlowKey::kHasPorts : 0;
  }

  // Of the rows [at, at + n), n at most 32, all columns that there are.
  void take(api::ColumnBurst& to, size_t at, size_t n) const {
    const auto column = [&]<typename T>(T* into, const Column& from) {
      if (from) api::ColumnBurst::take(into, from.row(at), from.stride(), n);
    };
    column(to.source, src);
    column(to.destination, dst);
    if (src6) api::ColumnBurst::take_address(to.source_high, to.source_low, src6.row(at), src6.stride(), n);
    if (dst6) api::ColumnBurst::take_address(to.destination_high, to.destination_low, dst6.row(at), dst6.stride(), n);
    column(to.src_port, sport);
    column(to.dst_port, dport);
    if (flags && flags.bits() == 8) {
      for (size_t i = 0; i < n; ++i) to.flags[i] = static_cast<uint16_t>(flags.at<uint8_t>(at + i) << 8);
    } else {
      column(to.flags, flags);
    }
    column(to.icmp, icmp);
    column(to.protocol, proto);
    column(to.dscp, dscp);
    column(to.bytes, bytes);
    if (bits) {
      column(to.bits, bits);
    } else {
      std::fill_n(to.bits, n, one_bits);
    }
  }
  // Fills the keys [at, at + n), by way of `burst`.
  void gather(api::ColumnBurst& burst, size_t at, size_t n, FlowKey* keys) const {
    for (size_t done = 0; done < n; done += api::ColumnBurst::kLanes) {
      const size_t some = std::min(n - done, api::ColumnBurst::kLanes);
      take(burst, at + done, some);
      for (size_t i = 0; i < some; ++i) {
        burst.store(i, family ? family.at<uint8_t>(at + done + i) : one_family, &keys[done + i]);
      }
    }
  }
};

// What a lookup writes, one column.
struct Answers {
  uint32_t* positions = nullptr;
  uint8_t* verdicts = nullptr;
  uint32_t* marks = nullptr;

  void put(size_t at, const sluice_match* found, size_t n) const {
    if (positions != nullptr) {
      for (size_t i = 0; i < n; ++i) positions[at + i] = found[i].rule;
    } else if (verdicts != nullptr) {
      for (size_t i = 0; i < n; ++i) verdicts[at + i] = static_cast<uint8_t>(found[i].action);
    } else {
      for (size_t i = 0; i < n; ++i) marks[at + i] = found[i].mark;
    }
  }
};

// Channels to a device for one table: a call takes one for itself, and gives it back.
class Channels {
 public:
  static constexpr uint32_t kBurst = 4096;

  // "cpu": there are none.
  explicit Channels(const std::string& device) {
    if (device == "cpu") return;
    Errors errors;
    device_.reset(sluice_device_open(device.c_str(), &errors));
    if (device_ == nullptr) errors.fail(true);
  }
  bool on_host() const { return device_ == nullptr; }
  std::string name() const { return on_host() ? "cpu" : sluice_device_name(device_.get()); }
  sluice_device* device() const { return device_.get(); }

  // Sends keys(at, n, to) and hands answers to put(at, matches, hops, n), all of one generation. Without the GIL.
  template <typename Open, typename GetKeys, typename Put>
  void run(size_t size, uint64_t newest, Open&& open, GetKeys&& keys, Put&& put) {
    const auto kept = keep_current_device();
    std::unique_ptr<sluice_channel, decltype(&sluice_channel_free)> channel(nullptr, sluice_channel_free);
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        channel = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    Errors errors;
    if (channel == nullptr) {
      sluice_channel_options options = SLUICE_CHANNEL_OPTIONS_INIT;
      options.burst = kBurst;
      channel.reset(open(device_.get(), &options, &errors));
      if (channel == nullptr) errors.fail(true);
    } else if (sluice_channel_generation(channel.get()) != newest) {
      if (sluice_channel_update(channel.get(), &errors) != 0) errors.fail(true);
    }
    std::vector<sluice_key> some(kBurst);
    std::vector<sluice_match> matches(kBurst);
    std::vector<uint32_t> hops(kBurst);
    size_t sent = 0, answered = 0, ready = 0;
    while (answered < size) {
      if (ready == 0 && sent < size) {
        ready = std::min<size_t>(kBurst, size - sent);
        keys(sent, ready, reinterpret_cast<FlowKey*>(some.data()));
      }
      if (ready != 0 && sluice_channel_submit(channel.get(), some.data(), ready) != 0) {
        sent += ready;
        ready = 0;
      }
      const size_t n = sluice_channel_poll(channel.get(), matches.data(), hops.data(), kBurst);
      if (n != 0) put(answered, matches.data(), hops.data(), n);
      answered += n;
    }
    // A device that has failed answers no more; the host did. The next call tries anew.
    const std::string failure = sluice_channel_failure(channel.get());
    if (!failure.empty()) {
      Failure lost(Error("the device has failed: " + failure));
      lost.device = true;
      throw lost;
    }
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(channel));
  }

 private:
  struct Close {
    void operator()(sluice_device* d) const { sluice_device_free(d); }
  };
  std::unique_ptr<sluice_device, Close> device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<sluice_channel, decltype(&sluice_channel_free)>> idle_;
};

class Acl {
 public:
  Acl(const std::string& device, sluice_acl* acl)
      : acl_(acl, sluice_acl_free), channels_(device), there_(channels_.device()) {}

  static std::unique_ptr<Acl> open(const std::string& path, const std::string& format, const std::string& algorithm,
                                   bool count, const std::string& device) {
    const nb::gil_scoped_release release;
    const sluice_acl_options o = options(format, algorithm, count);
    Errors errors;
    sluice_acl* const acl = sluice_acl_open(path.c_str(), &o, &errors);
    if (acl == nullptr) errors.fail();
    return made(device, acl);
  }
  static std::unique_ptr<Acl> read(const nb::bytes& text, const std::string& name, const std::string& format,
                                   const std::string& algorithm, bool count, const std::string& device) {
    const char* const data = text.c_str();
    const size_t n = text.size();
    const nb::gil_scoped_release release;
    const sluice_acl_options o = options(format, algorithm, count);
    Errors errors;
    sluice_acl* const acl = sluice_acl_read(data, n, name.c_str(), &o, &errors);
    if (acl == nullptr) errors.fail();
    return made(device, acl);
  }

  // `kind`: 0 positions (uint32), 1 verdicts (uint8), 2 marks (uint32). Returns the generation.
  uint64_t classify(const nb::dict& columns, int kind, nb::handle out) {
    const Keys keys(columns);
    Answers answers;
    if (kind == 0) {
      answers.positions = output<uint32_t>("out", out, keys.size);
    } else if (kind == 1) {
      answers.verdicts = output<uint8_t>("out", out, keys.size);
    } else {
      answers.marks = output<uint32_t>("out", out, keys.size);
    }
    const nb::gil_scoped_release release;
    api::ColumnBurst burst(keys.one_family);
    if (!channels_.on_host()) {
      const uint64_t newest = sluice_acl_generation(acl_.get());
      channels_.run(
          keys.size, newest,
          [&](sluice_device* d, const sluice_channel_options* o, sluice_errors** e) {
            return sluice_channel_open_acl(d, acl_.get(), o, e);
          },
          [&](size_t at, size_t n, FlowKey* to) { keys.gather(burst, at, n, to); },
          [&](size_t at, const sluice_match* found, const uint32_t*, size_t n) { answers.put(at, found, n); });
      return newest;
    }
    return acl_->table->read(keys.size >= api::kLongAclLookup, [&](const OpenedAcl& opened) {
      const api::Counting counting(acl_->seats.get(), opened);
      const auto look_up = [&](auto&& some, size_t at, size_t n) {
        if (answers.positions != nullptr) return api::find_burst(opened, counting, some, n, answers.positions + at);
        std::array<sluice_match, kAclBurst> found;
        api::classify_burst(opened, counting, some, n, found.data());
        answers.put(at, found.data(), n);
      };
      std::array<FlowKey, kAclBurst> mixed;
      for (size_t at = 0; at < keys.size; at += kAclBurst) {
        const size_t n = std::min(keys.size - at, kAclBurst);
        if (keys.family) {
          keys.gather(burst, at, n, mixed.data());
          look_up([&](size_t i) { return &mixed[i]; }, at, n);
        } else {
          keys.take(burst, at, n);
          look_up(burst, at, n);
        }
      }
    });
  }

  // The same of columns, and of a result, in the memory of the list's device: what their `__dlpack__` has returned.
  uint64_t classify_there(const nb::dict& columns, int kind, nb::handle out) {
    return there_.look_up(columns, static_cast<uint32_t>(kind), out, [&](sluice_device* d, sluice_errors** e) {
      return sluice_resident_open_acl(d, acl_.get(), e);
    });
  }
  const There& there() const { return there_; }

  void change(const std::string& text, const std::string& name) {
    const nb::gil_scoped_release release;
    Errors errors;
    if (sluice_acl_change(acl_.get(), text.c_str(), name.c_str(), &errors) != 0) errors.fail();
  }
  void save(const std::string& path) {
    const nb::gil_scoped_release release;
    Errors errors;
    if (sluice_acl_save(acl_.get(), path.c_str(), &errors) != 0) errors.fail();
  }
  size_t size() const { return sluice_acl_size(acl_.get()); }
  uint64_t generation() const { return sluice_acl_generation(acl_.get()); }
  const char* algorithm() const { return sluice_acl_algorithm(acl_.get()); }
  std::string device() const { return channels_.name(); }

  nb::tuple rule(uint32_t position) const {
    Errors errors;
    const std::unique_ptr<sluice_rule, decltype(&sluice_rule_free)> r(sluice_acl_rule(acl_.get(), position, &errors),
                                                                      sluice_rule_free);
    if (r == nullptr) errors.fail();
    return nb::make_tuple(position, r->text, r->file, r->line, r->action, r->mark);
  }
  // Writes packets and bytes of no rule, then of each rule; returns those of rules that are gone.
  nb::tuple counters(nb::handle packets, nb::handle bytes, size_t n) const {
    uint64_t* const p = output<uint64_t>("packets", packets, n);
    uint64_t* const b = output<uint64_t>("bytes", bytes, n);
    std::vector<sluice_counter> all(n);
    sluice_counter removed{};
    Errors errors;
    const size_t have = sluice_acl_counters(acl_.get(), all.data(), n, &removed, &errors);
    if (have == 0) errors.fail();
    for (size_t i = 0; i < std::min(n, have); ++i) {
      p[i] = all[i].packets;
      b[i] = all[i].bytes;
    }
    return nb::make_tuple(have, removed.packets, removed.bytes);
  }

 private:
  static sluice_acl_options options(const std::string& format, const std::string& algorithm, bool count) {
    sluice_acl_options o = SLUICE_ACL_OPTIONS_INIT;
    if (format != "auto") o.format = format.c_str();
    if (algorithm != "auto") o.algorithm = algorithm.c_str();
    o.count = count ? 1 : 0;
    return o;
  }
  // The list is freed where the device is not there.
  static std::unique_ptr<Acl> made(const std::string& device, sluice_acl* acl) {
    std::unique_ptr<sluice_acl, decltype(&sluice_acl_free)> held(acl, sluice_acl_free);
    auto one = std::make_unique<Acl>(device, nullptr);
    one->acl_ = std::move(held);
    return one;
  }

  std::unique_ptr<sluice_acl, decltype(&sluice_acl_free)> acl_;
  Channels channels_;
  There there_;
};

class Fib {
 public:
  Fib(const std::string& device, sluice_fib* fib)
      : fib_(fib, sluice_fib_free), channels_(device), there_(channels_.device()) {}

  static std::unique_ptr<Fib> open(const std::string& paths, const std::string& algorithm4,
                                   const std::string& algorithm6, const std::string& device) {
    const nb::gil_scoped_release release;
    const sluice_fib_options o = options(algorithm4, algorithm6);
    Errors errors;
    sluice_fib* const fib = sluice_fib_open(paths.c_str(), &o, &errors);
    if (fib == nullptr) errors.fail();
    return made(device, fib);
  }
  static std::unique_ptr<Fib> read(const nb::bytes& text, const std::string& name, const std::string& algorithm4,
                                   const std::string& algorithm6, const std::string& device) {
    const char* const data = text.c_str();
    const size_t n = text.size();
    const nb::gil_scoped_release release;
    const sluice_fib_options o = options(algorithm4, algorithm6);
    Errors errors;
    sluice_fib* const fib = sluice_fib_read(data, n, name.c_str(), &o, &errors);
    if (fib == nullptr) errors.fail();
    return made(device, fib);
  }

  // Writes the index of each address's next hop, -1 for none.
  uint64_t lookup(nb::handle addresses, bool six, nb::handle out) {
    const Column from("addresses", addresses, six ? 8 : 32, six ? 16 : 0);
    int32_t* const to = output<int32_t>("out", out, from.size());
    const size_t size = from.size();
    const nb::gil_scoped_release release;
    if (!channels_.on_host()) {
      const uint64_t newest = sluice_fib_generation(fib_.get());
      channels_.run(
          size, newest,
          [&](sluice_device* d, const sluice_channel_options* o, sluice_errors** e) {
            return sluice_channel_open_fib(d, fib_.get(), o, e);
          },
          [&](size_t at, size_t n, FlowKey* keys) {
            for (size_t i = 0; i < n; ++i) {
              keys[i] = {};
              keys[i].family = six ? 6 : 4;
              if (six) {
                keys[i].dst_hi = load_be64(from.row(at + i));
                keys[i].dst_lo = load_be64(from.row(at + i) + 8);
              } else {
                keys[i].dst_lo = from.at<uint32_t>(at + i);
              }
            }
          },
          [&](size_t at, const sluice_match*, const uint32_t* hops, size_t n) { put(to + at, hops, n); });
      return newest;
    }
    return fib_->table->read(size >= api::kLongFibLookup, [&](const OpenedFib& opened) {
      constexpr size_t kSome = 512;
      std::array<uint32_t, kSome> address, hops;
      std::array<uint64_t, kSome> hi, lo;
      for (size_t at = 0; at < size; at += kSome) {
        const size_t n = std::min(size - at, kSome);
        if (six) {
          for (size_t i = 0; i < n; ++i) {
            hi[i] = load_be64(from.row(at + i));
            lo[i] = load_be64(from.row(at + i) + 8);
          }
          opened.lookup6(hi.data(), lo.data(), hops.data(), n);
        } else {
          for (size_t i = 0; i < n; ++i) address[i] = from.at<uint32_t>(at + i);
          opened.lookup4(address.data(), hops.data(), n);
        }
        put(to + at, hops.data(), n);
      }
    });
  }

  // The same of addresses, and of a result, in the memory of the routes' device: what their `__dlpack__` has returned.
  uint64_t lookup_there(const nb::dict& columns, nb::handle out) {
    return there_.look_up(columns, SLUICE_ANSWER_INDEX, out, [&](sluice_device* d, sluice_errors** e) {
      return sluice_resident_open_fib(d, fib_.get(), e);
    });
  }
  const There& there() const { return there_; }

  void change(const std::string& text, const std::string& name) {
    const nb::gil_scoped_release release;
    Errors errors;
    if (sluice_fib_change(fib_.get(), text.c_str(), name.c_str(), &errors) != 0) errors.fail();
  }
  void save(const std::string& path) {
    const nb::gil_scoped_release release;
    Errors errors;
    if (sluice_fib_save(fib_.get(), path.c_str(), &errors) != 0) errors.fail();
  }
  uint64_t generation() const { return sluice_fib_generation(fib_.get()); }
  uint32_t next_hops() const { return sluice_fib_next_hops(fib_.get()); }
  std::string next_hop(uint32_t number) const {
    std::string text(sluice_fib_next_hop(fib_.get(), number, nullptr, 0) + 1, '\0');
    sluice_fib_next_hop(fib_.get(), number, text.data(), text.size());
    text.pop_back();
    return text;
  }
  const char* algorithm(int family) const { return sluice_fib_algorithm(fib_.get(), family); }
  std::string device() const { return channels_.name(); }

 private:
  static void put(int32_t* to, const uint32_t* hops, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<int32_t>(hops[i]) - 1;
  }
  static sluice_fib_options options(const std::string& algorithm4, const std::string& algorithm6) {
    sluice_fib_options o = SLUICE_FIB_OPTIONS_INIT;
    if (!algorithm4.empty()) o.algorithm4 = algorithm4.c_str();
    if (!algorithm6.empty()) o.algorithm6 = algorithm6.c_str();
    return o;
  }
  static std::unique_ptr<Fib> made(const std::string& device, sluice_fib* fib) {
    std::unique_ptr<sluice_fib, decltype(&sluice_fib_free)> held(fib, sluice_fib_free);
    auto one = std::make_unique<Fib>(device, nullptr);
    one->fib_ = std::move(held);
    return one;
  }

  std::unique_ptr<sluice_fib, decltype(&sluice_fib_free)> fib_;
  Channels channels_;
  There there_;
};

}  // namespace

void bind_tables(nb::module_& m) {
  nb::class_<Acl>(m, "Acl")
      .def_static("open", &Acl::open)
      .def_static("read", &Acl::read)
      .def("classify", &Acl::classify)
      .def("classify_there", &Acl::classify_there)
      .def("there", &Acl::there, nb::rv_policy::reference_internal)
      .def("change", &Acl::change)
      .def("save", &Acl::save)
      .def("size", &Acl::size)
      .def("generation", &Acl::generation)
      .def("algorithm", &Acl::algorithm)
      .def("device", &Acl::device)
      .def("rule", &Acl::rule)
      .def("counters", &Acl::counters);
  nb::class_<Fib>(m, "Fib")
      .def_static("open", &Fib::open)
      .def_static("read", &Fib::read)
      .def("lookup", &Fib::lookup)
      .def("lookup_there", &Fib::lookup_there)
      .def("there", &Fib::there, nb::rv_policy::reference_internal)
      .def("change", &Fib::change)
      .def("save", &Fib::save)
      .def("generation", &Fib::generation)
      .def("next_hops", &Fib::next_hops)
      .def("next_hop", &Fib::next_hop)
      .def("algorithm", &Fib::algorithm)
      .def("device", &Fib::device);
}

}  // namespace sluice::python
