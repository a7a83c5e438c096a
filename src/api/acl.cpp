// host only
// The functions of access lists.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "api/border.h"
#include "api/classify.h"
#include "api/table.h"
#include "control/acl_images.h"
#include "formats/native_rules.h"
#include "formats/rule_files.h"
#include "net/parse.h"

namespace sluice::api {
namespace {

// Keys cross the border as they are.
static_assert(sizeof(sluice_key) == sizeof(FlowKey) && alignof(sluice_key) == alignof(FlowKey));
static_assert(offsetof(sluice_key, src_hi) == offsetof(FlowKey, src_hi) &&
              offsetof(sluice_key, src_lo) == offsetof(FlowKey, src_lo) &&
              offsetof(sluice_key, dst_hi) == offsetof(FlowKey, dst_hi) &&
              offsetof(sluice_key, dst_lo) == offsetof(FlowKey, dst_lo) &&
              offsetof(sluice_key, src_port) == offsetof(FlowKey, src_port) &&
              offsetof(sluice_key, dst_port) == offsetof(FlowKey, dst_port) &&
              offsetof(sluice_key, flags) == offsetof(FlowKey, flags) &&
              offsetof(sluice_key, protocol) == offsetof(FlowKey, protocol) &&
              offsetof(sluice_key, dscp) == offsetof(FlowKey, dscp) &&
              offsetof(sluice_key, family) == offsetof(FlowKey, family) &&
              offsetof(sluice_key, bits) == offsetof(FlowKey, bits) &&
              offsetof(sluice_key, icmp) == offsetof(FlowKey, icmp) &&
              offsetof(sluice_key, bytes) == offsetof(FlowKey, reserved));
static_assert(int{SLUICE_KEY_PORTS} == int{FlowKey::kHasPorts} && int{SLUICE_KEY_FRAGMENT} == int{FlowKey::kFragment} &&
              int{SLUICE_KEY_LATER_FRAGMENT} == int{FlowKey::kLaterFragment} &&
              int{SLUICE_KEY_NO_FLAGS} == int{FlowKey::kNoFlags} &&
              int{SLUICE_KEY_NO_ICMP_TYPE} == int{FlowKey::kNoIcmpType} &&
              int{SLUICE_KEY_SHORT_L4} == int{FlowKey::kShortL4} && int{SLUICE_KEY_AFTER_AH} == int{FlowKey::kAfterAh});
static_assert(SLUICE_NO_MATCH == static_cast<int>(AclVerb::kNone) &&
              SLUICE_PERMIT == static_cast<int>(AclVerb::kPermit) && SLUICE_DENY == static_cast<int>(AclVerb::kDeny) &&
              SLUICE_MARK == static_cast<int>(AclVerb::kMark));

// Entries [at, at + n) of the columns.
void take(ColumnBurst& to, const sluice_key_columns& c, size_t at, size_t n) {
  const auto column = [&]<typename T>(T* into, const T* from) {
    if (from != nullptr) ColumnBurst::take(into, from + at, sizeof(T), n);
  };
  if (c.family == 4) {
    column(to.source, c.src4);
    column(to.destination, c.dst4);
  } else {
    column(to.source_high, c.src_hi);
    column(to.source_low, c.src_lo);
    column(to.destination_high, c.dst_hi);
    column(to.destination_low, c.dst_lo);
  }
  column(to.protocol, c.protocol);
  column(to.src_port, c.src_port);
  column(to.dst_port, c.dst_port);
  column(to.flags, c.flags);
  column(to.icmp, c.icmp);
  column(to.dscp, c.dscp);
  column(to.bytes, c.bytes);
  if (c.bits != nullptr) {
    column(to.bits, c.bits);
    return;
  }
  for (size_t i = 0; i < ColumnBurst::kLanes; ++i) {
    const uint8_t p = to.protocol[i];
    to.bits[i] = p == 6 || p == 17 || p == 33 || p == 132 || p == 136 ? uint8_t{FlowKey::kHasPorts} : uint8_t{0};
  }
}

bool usable(const sluice_key_columns* c) {
  if (c == nullptr || c->size != sizeof(sluice_key_columns)) return false;
  if (c->family == 4) return c->src4 != nullptr && c->dst4 != nullptr;
  return c->family == 6 && c->src_hi != nullptr && c->src_lo != nullptr && c->dst_hi != nullptr && c->dst_lo != nullptr;
}

Result<sluice_acl*> load(std::string path, std::optional<std::span<const std::byte>> bytes,
                         const sluice_acl_options* options) {
  auto o = options_or(options, sluice_acl_options SLUICE_ACL_OPTIONS_INIT);
  if (!o) return std::move(o).error();
  if (o->count > 1) return bad_argument("the option `count` is neither 0 nor 1");
  TableDeclaration d{.type = TableDeclaration::Type::kAcl};
  d.files = {path};
  d.format = text_or(o->format, "auto");
  d.algorithm = text_or(o->algorithm, "");
  auto acl = std::make_unique<sluice_acl>();
  acl->format = d.format;
  if (o->count != 0) acl->seats.reset(new CountingSeat[kCountingSeats]);
  auto table = AclTable::load(d, {std::move(path), bytes}, o->count != 0);
  if (!table) return std::move(table).error();
  acl->table = std::move(*table);
  return acl.release();
}

Result<void> replace(sluice_acl& acl, Result<InputFile> file, std::string_view as) {
  if (!file) return std::move(file).error();
  auto format = parse_rule_format(as);
  if (!format) return std::move(format).error();
  return acl.table->change([&](LiveTables& live) -> Result<void> {
    auto done = live.replace_acl(AclTable::name(), *file, *format, false);
    if (!done) return std::move(done).error();
    return {};
  });
}

// A rule and its texts in one piece.
struct Rule : sluice_rule {
  std::string text_, file_;
};

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

int sluice_key_of_frame(const void* frame, size_t captured, size_t wire_bytes, sluice_key* key) {
  if (key == nullptr) return -1;
  *key = {};
  if (frame == nullptr && captured != 0) return -1;
  if (wire_bytes == 0) wire_bytes = captured;
  const auto most = size_t{UINT32_MAX};
  key->bytes = static_cast<uint32_t>(std::min(wire_bytes, most));
  Headers headers;
  if (parse_ethernet(static_cast<const uint8_t*>(frame), static_cast<uint32_t>(std::min(captured, most)), key->bytes,
                     headers) != ParseStatus::kOk)
    return -1;
  headers.key.reserved = key->bytes;
  std::memcpy(key, &headers.key, sizeof *key);
  return 0;
}

int sluice_key_of_packet(const void* packet, size_t captured, size_t wire_bytes, sluice_key* key) {
  if (key == nullptr) return -1;
  *key = {};
  if (packet == nullptr && captured != 0) return -1;
  if (wire_bytes == 0) wire_bytes = captured;
  const auto most = size_t{UINT32_MAX};
  key->bytes = static_cast<uint32_t>(std::min(wire_bytes, most));
  Headers headers;
  if (parse_ip(static_cast<const uint8_t*>(packet), static_cast<uint32_t>(std::min(captured, most)), key->bytes, 0,
               headers, false) != ParseStatus::kOk)
    return -1;
  headers.key.reserved = key->bytes;
  std::memcpy(key, &headers.key, sizeof *key);
  return 0;
}

sluice_acl* sluice_acl_open(const char* path, const sluice_acl_options* options, sluice_errors** errors) {
  return guarded<sluice_acl*>(errors, nullptr, [&]() -> Result<sluice_acl*> {
    if (path == nullptr) return bad_argument("the path is NULL");
    return load(path, {}, options);
  });
}

sluice_acl* sluice_acl_read(const void* bytes, size_t n, const char* name, const sluice_acl_options* options,
                            sluice_errors** errors) {
  return guarded<sluice_acl*>(errors, nullptr, [&]() -> Result<sluice_acl*> {
    if (bytes == nullptr && n != 0) return bad_argument("the bytes are NULL");
    return load(std::string(text_or(name, "memory")), std::span(static_cast<const std::byte*>(bytes), n), options);
  });
}

void sluice_acl_free(sluice_acl* acl) {
  quiet(0, [&] { return delete acl, 0; });
}

uint64_t sluice_acl_classify(const sluice_acl* acl, const sluice_key* keys, size_t n, sluice_match* matches) {
  if (acl == nullptr || (n != 0 && (keys == nullptr || matches == nullptr))) return 0;
  return acl->table->read(
      n >= kLongAclLookup, [=](const OpenedAcl& opened) __attribute__((always_inline)) {
        const Counting counting(acl->seats.get(), opened);
        const auto* const from = reinterpret_cast<const FlowKey*>(keys);
        for (size_t at = 0; at < n; at += kAclBurst) {
          classify_burst(
              opened, counting, [&](size_t i) { return from + at + i; }, std::min(n - at, kAclBurst), matches + at);
        }
      });
}

uint64_t sluice_acl_classify_columns(const sluice_acl* acl, const sluice_key_columns* keys, size_t n,
                                     sluice_match* matches) {
  if (acl == nullptr || !usable(keys) || (n != 0 && matches == nullptr)) return 0;
  return acl->table->read(n >= kLongAclLookup, [&](const OpenedAcl& opened) {
    const Counting counting(acl->seats.get(), opened);
    ColumnBurst some(keys->family);
    for (size_t at = 0; at < n; at += kAclBurst) {
      const size_t burst = std::min(n - at, kAclBurst);
      take(some, *keys, at, burst);
      classify_burst(opened, counting, some, burst, matches + at);
    }
  });
}

int sluice_acl_change(sluice_acl* acl, const char* text, const char* name, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (acl == nullptr || text == nullptr) return bad_argument("the list or the text is NULL");
    return acl->table->change([&](LiveTables& live) -> Result<int> {
      auto done = live.change_acl(AclTable::name(), text, std::string(text_or(name, "change")), false);
      if (!done) return std::move(done).error();
      return 0;
    });
  });
}

int sluice_acl_replace_file(sluice_acl* acl, const char* path, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (acl == nullptr || path == nullptr) return bad_argument("the list or the path is NULL");
    if (auto ok = replace(*acl, InputFile::open(path), acl->format); !ok) return std::move(ok).error();
    return 0;
  });
}

int sluice_acl_replace_file_as(sluice_acl* acl, const char* path, const char* format, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (acl == nullptr || path == nullptr) return bad_argument("the list or the path is NULL");
    if (auto ok = replace(*acl, InputFile::open(path), text_or(format, "auto")); !ok) return std::move(ok).error();
    return 0;
  });
}

int sluice_acl_replace(sluice_acl* acl, const void* bytes, size_t n, const char* name, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (acl == nullptr || (bytes == nullptr && n != 0)) return bad_argument("the list or the bytes are NULL");
    auto ok = replace(
        *acl, InputFile::over(std::span(static_cast<const std::byte*>(bytes), n), std::string(text_or(name, "memory"))),
        acl->format);
    if (!ok) return std::move(ok).error();
    return 0;
  });
}

int sluice_acl_save(sluice_acl* acl, const char* path, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (acl == nullptr || path == nullptr) return bad_argument("the list or the path is NULL");
    return acl->table->change([&](LiveTables& live) -> Result<int> {
      const std::shared_ptr<const Image> now = live.tables().acls.find(AclTable::name())->second;
      Result<void> written;
      if (now->patches() != nullptr) {
        // A replica has no checksum, and room to grow.
        auto rules = live.rules(AclTable::name());
        if (!rules) return std::move(rules).error();
        auto image = build_acl((*rules)->set(), acl_image_algorithm(*now));
        if (!image) return std::move(image).error();
        written = image->write(path);
      } else {
        written = now->write(path);
      }
      if (!written) return std::move(written).error();
      return 0;
    });
  });
}

size_t sluice_acl_size(const sluice_acl* acl) {
  if (acl == nullptr) return 0;
  size_t size = 0;
  acl->table->read(false, [&](const OpenedAcl& opened) { size = opened.size(); });
  return size;
}

uint64_t sluice_acl_generation(const sluice_acl* acl) {
  if (acl == nullptr) return 0;
  return acl->table->read(false, [](const auto&) {});
}

const char* sluice_acl_algorithm(const sluice_acl* acl) {
  if (acl == nullptr) return "";
  const char* found = "";
  acl->table->read(false, [&](const OpenedAcl& opened) {
    const std::string_view name = acl_image_algorithm(*opened.image);
    [&]<typename... A>(AclAlgorithmList<A...>) {
      ((name == A::kName ? void(found = A::kName) : void()), ...);
    }(AclAlgorithms{});
  });
  return found;
}

int sluice_acl_measure(const sluice_acl* acl, sluice_acl_shape* shape) {
  if (acl == nullptr || shape == nullptr || shape->size != sizeof *shape) return -1;
  return guarded<int>(nullptr, -1, [&]() -> Result<int> {
    const auto opened = acl->table->hold().first;
    *shape = {sizeof *shape, 0, 0, opened->image->bytes().size()};
    auto add = [&](const auto& view) {
      if (!view) return;
      const auto of = view->shape();
      for (const bool wide : {false, true}) {
        const uint32_t tables = wide ? of.wide_tables : of.narrow_tables;
        shape->tables += tables;
        for (uint32_t i = 0; i < tables; ++i) shape->slots += uint64_t{1} << (32 - view->table(wide, i).slot_shift);
      }
    };
    const std::string_view name = acl_image_algorithm(*opened->image);
    if (name == TupleMergeAcl::kName) add(TupleMergeAcl::View::open(*opened->image));
    if (name == TupleSpaceAcl::kName) add(TupleSpaceAcl::View::open(*opened->image));
    return 0;
  });
}

sluice_rule* sluice_acl_rule(const sluice_acl* acl, uint32_t position, sluice_errors** errors) {
  return guarded<sluice_rule*>(errors, nullptr, [&]() -> Result<sluice_rule*> {
    if (acl == nullptr) return bad_argument("the list is NULL");
    const auto [opened, generation] = acl->table->hold();
    if (position == 0 || position > opened->size()) {
      return Error("there is no rule " + std::to_string(position) + ": the list has " + std::to_string(opened->size()));
    }
    const uint32_t number = opened->number(position);
    const AclAction action = opened->actions.action(number);
    auto rule = std::make_unique<Rule>();
    rule->text_ = to_native(configured_rule(opened->rules.rule(number), action));
    rule->file_ = opened->source.file(number);
    rule->text = rule->text_.c_str();
    rule->file = rule->file_.c_str();
    rule->line = opened->source.line(number);
    rule->action = static_cast<uint32_t>(action.verb);
    rule->mark = action.mark;
    rule->reserved = 0;
    rule->generation = generation;
    return rule.release();
  });
}

void sluice_rule_free(sluice_rule* rule) {
  delete static_cast<Rule*>(rule);
}

size_t sluice_acl_counters(const sluice_acl* acl, sluice_counter* counters, size_t n, sluice_counter* removed,
                           sluice_errors** errors) {
  return guarded(errors, size_t{0}, [&]() -> Result<size_t> {
    if (acl == nullptr || (counters == nullptr && n != 0)) return bad_argument("the list or the counters are NULL");
    HitLedger* const ledger = acl->table->ledger();
    if (ledger == nullptr) return Error("this list does not count", "open it with the option `count`");
    const HitLedger::Counts counts = ledger->read_since_clear(AclTable::name());
    // As of the version that they are of.
    std::optional<RulePositions> positions;
    if (counts.image->patches() != nullptr) {
      auto rules = AclRulesView::open(*counts.image);
      if (!rules) return std::move(rules).error();
      positions.emplace(*counts.image, *rules, nullptr);
    }
    const size_t all = positions ? positions->size() + size_t{1} : counts.rules.size();
    for (uint32_t i = 0; i < std::min(n, all); ++i) {
      const HitCount& c = counts.rules[i != 0 && positions ? positions->number(i) : i];
      counters[i] = {c.packets, c.bytes};
    }
    if (removed != nullptr) *removed = {counts.removed.packets, counts.removed.bytes};
    return all;
  });
}

int sluice_acl_clear_counters(sluice_acl* acl, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (acl == nullptr) return bad_argument("the list is NULL");
    HitLedger* const ledger = acl->table->ledger();
    if (ledger == nullptr) return Error("this list does not count", "open it with the option `count`");
    ledger->clear();
    return 0;
  });
}

}  // extern "C"
