// Any text as changes of a list ('a') or of routes ('r'), one after another where lines of "--" part them: whole or not
// at all, and a dry run says the same and does nothing.
#include <cstdlib>
#include <cstring>

#include "control/live_fuzz_input.h"
#include "tables/acl/algorithms.h"

namespace {

using namespace sluice;

void require(bool condition) {
  if (!condition) std::abort();
}

void change(FuzzedRuntime& live, bool acl, std::string_view text) {
  const auto make = [&](bool dry_run) {
    return acl ? live.tables->change_acl("edge", text, "t", dry_run)
               : live.tables->change_routes("fib", text, "t", dry_run);
  };
  const std::string before = live.list();
  const uint64_t generation = live.runtime->publisher().generation();
  const auto dry = make(true);
  require(live.list() == before && live.runtime->publisher().generation() == generation);
  const auto done = make(false);
  require(dry.ok() == done.ok());
  if (!done) {
    require(!to_string(done.error()).empty());
    require(live.list() == before && live.runtime->publisher().generation() == generation);
    return;
  }
  require(done->differs == dry->differs && done->entries_after == dry->entries_after);
  require(live.runtime->publisher().generation() == generation + (done->differs ? 1 : 0));
  if (!acl) return;
  // The image has the rules of the list, in their order.
  const RuleSet set = (*live.tables->rules("edge"))->set();
  require(set.rules.size() == done->entries_after);
  const auto rules = AclRulesView::open(*live.tables->tables().acls.at("edge"));
  require(rules.ok());
  size_t next = 0;
  for (uint32_t r = 1; r <= rules->size(); ++r) {
    const AclMatchRule& rule = rules->rule(r);
    if (rule.src_port_low > rule.src_port_high) continue;  // no rule is there
    require(next < set.rules.size() && same_match(rule, flatten(set.rules[next], r)));
    ++next;
  }
  require(next == set.rules.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || (data[0] != 'a' && data[0] != 'r')) return 0;
  FuzzedRuntime live;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (int n = 0; n < 8; ++n) {
    const size_t end = text.find("\n--\n");
    change(live, data[0] == 'a', text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 4);
  }
  return 0;
}
