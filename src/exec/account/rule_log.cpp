// host only
#include "exec/account/rule_log.h"

#include <bit>

#include "exec/account/hits.h"
#include "exec/account/list_versions.h"
#include "exec/engine/snapshot.h"
#include "exec/walk/plan.h"

namespace sluice {

void RuleLog::make_rings() {
  if (!rings_.empty()) return;
  const uint32_t room = std::clamp<uint32_t>(4 * kRoom / std::max(workers_, 1u), kRoom / 8, kRoom);
  std::vector<std::unique_ptr<LoggedRules::Ring>> rings;
  for (unsigned w = 0; w < workers_; ++w) rings.push_back(std::make_unique<LoggedRules::Ring>(room));
  rings_ = std::move(rings);
}

std::shared_ptr<LoggedRule> RuleLog::find(const std::string& table, const AclMatchRule& match, const AclAction& action,
                                          const std::string& identity) {
  std::shared_ptr<LoggedRule>& rule = rules_[{table, identity}];
  if (rule == nullptr) {
    try {
      rule = std::make_shared<LoggedRule>();
      rule->table = table;
      rule->match = match;
      rule->action = action;
      rule->left.store(rate_, std::memory_order_relaxed);
    } catch (...) {
      rules_.erase({table, identity});
      throw;
    }
  }
  return rule;
}

// The version's rules with `log`; nullptr: there are none.
std::shared_ptr<LoggedRules> RuleLog::make(const std::string& table, const Image* before,
                                           const LoggedRules* rules_before, const Image& image) {
  const auto list = ListRules::of(image);
  if (!list) return nullptr;
  const auto source = AclSourceView::open(image);
  std::map<std::string, std::shared_ptr<const std::string>, std::less<>> files;
  const auto put_place = [&](LoggedRules::Rule& rule) {
    rule.place.line = source.ok() ? source->line(rule.number) : 0;
    rule.place.file = nullptr;
    if (rule.place.line == 0) return;
    auto& file = files[std::string(source->file(rule.number))];
    if (file == nullptr) file = std::make_shared<const std::string>(source->file(rule.number));
    rule.place.file = file;
  };
  const auto make_rule = [&](uint32_t number) {
    LoggedRules::Rule rule;
    rule.number = number;
    rule.rule = find(table, list->match.rule(number), list->actions.action(number), rule_identity(*list, number));
    put_place(rule);
    return rule;
  };
  const auto logs = [&](uint32_t number) { return list->actions.action(number).log != 0 && list->is_rule(number); };

  std::vector<LoggedRules::Rule> rules;
  const auto touched = before != nullptr ? touched_rules(*before, image) : std::nullopt;
  const auto old = before != nullptr ? ListRules::of(*before) : std::nullopt;
  if (touched && old) {
    // Those that were not touched stay, and move by what came and went in front of them.
    static const std::vector<LoggedRules::Rule> kNoRules;
    const std::vector<LoggedRules::Rule>& kept = rules_before != nullptr ? rules_before->rules_ : kNoRules;
    size_t k = 0, t = 0;
    int64_t moved = 0;
    while (k < kept.size() || t < touched->size()) {
      if (t == touched->size() || (k < kept.size() && kept[k].number < (*touched)[t])) {
        rules.push_back(kept[k++]);
        rules.back().place.position = static_cast<uint32_t>(rules.back().place.position + moved);
        put_place(rules.back());
        continue;
      }
      const uint32_t number = (*touched)[t++];
      if (k < kept.size() && kept[k].number == number) ++k;
      if (logs(number)) rules.push_back(make_rule(number));
      moved += int64_t{list->is_rule(number)} - int64_t{old->is_rule(number)};
    }
  } else {
    for (uint32_t number = 1; number <= list->size(); ++number) {
      if (logs(number)) rules.push_back(make_rule(number));
    }
  }
  if (rules.empty()) return nullptr;
  // Rules that are new here have no position yet: they count on from the one before.
  uint32_t at = 0, position = 0;
  for (LoggedRules::Rule& rule : rules) {
    if (rule.place.position == 0) {
      for (++at; at <= rule.number; ++at) position += list->is_rule(at) ? 1 : 0;
      rule.place.position = position;
    }
    at = rule.number;
    position = rule.place.position;
  }

  make_rings();
  auto made = std::make_shared<LoggedRules>();
  made->range_ = {rules.front().number, rules.back().number - rules.front().number};
  made->words_.resize(rules.back().number / 64 + size_t{1});
  for (const LoggedRules::Rule& rule : rules) made->words_[rule.number / 64].bits |= uint64_t{1} << rule.number % 64;
  uint32_t sum = 0;
  for (LoggedRules::Word& word : made->words_) {
    word.before = sum;
    sum += static_cast<uint32_t>(std::popcount(word.bits));
  }
  made->stride_ = (rules.size() + 7) / 8 * 8 + 8;
  made->missed_ = std::make_unique<std::atomic<uint64_t>[]>(workers_ * made->stride_);
  made->rings_ = rings_.data();
  made->rules_ = std::move(rules);
  return made;
}

std::shared_ptr<const LoggedRules> RuleLog::of(const std::string& table, const std::shared_ptr<const Image>& image,
                                               const std::string& element,
                                               std::shared_ptr<const std::vector<std::string>> inputs) {
  const std::lock_guard lock(mutex_);
  Newest& newest = newest_[{table, element}];
  const auto before = newest.image.lock();
  const auto rules_before = newest.rules.lock();
  const bool known =
      before != nullptr && before->version() == newest.image_version && (!newest.any || rules_before != nullptr);
  if (known && before == image && (!newest.any || *rules_before->inputs_ == *inputs)) return rules_before;
  auto made = make(table, known ? before.get() : nullptr, known ? rules_before.get() : nullptr, *image);
  if (made != nullptr) {
    made->version_ = last_version_ + 1;
    made->element_ = element;
    made->inputs_ = std::move(inputs);
    versions_.push_back(made);
    ++last_version_;
    // Of equal rules the first decides.
    for (size_t s = made->rules_.size(); s-- > 0;) made->rules_[s].rule->place = made->rules_[s].place;
    changed_.notify_all();
  }
  newest = {image, image->version(), made != nullptr, made};
  return made;
}

void RuleLog::attach(Snapshot& snapshot, const Router& router, const Plan& plan) {
  snapshot.rules.logs.clear();
  std::shared_ptr<const std::vector<std::string>> inputs;
  for (const Program& program : snapshot.programs) {
    for (uint32_t s = 0; s < program.stage_count; ++s) {
      const StageSlot& slot = program.stages[s];
      const std::string* table = counted_table(slot, snapshot.tables);
      if (table == nullptr) continue;
      if (inputs == nullptr) {
        std::vector<std::string> names;
        for (const PlanSource& source : plan.sources) names.push_back(router.elements[source.element]->name);
        inputs = std::make_shared<const std::vector<std::string>>(std::move(names));
      }
      auto rules = of(*table, snapshot.tables.acls.find(*table)->second, router.elements[slot.element]->name, inputs);
      RuleAccounts::put<std::shared_ptr<const LoggedRules>>(snapshot.rules.logs, slot.element, std::move(rules));
    }
  }
}

std::vector<RuleLog::Event> RuleLog::take(uint64_t now_ns) {
  std::vector<Event> events;
  const std::lock_guard lock(mutex_);
  if (granted_ns_ == 0) granted_ns_ = now_ns;
  // What is less than a whole record stays for the next time; nobody is granted more than a second's.
  const uint64_t since = std::min<uint64_t>(now_ns - std::min(now_ns, granted_ns_), 1'000'000'000);
  const auto grant = static_cast<int64_t>(since * static_cast<uint64_t>(rate_) / 1'000'000'000);
  if (grant > 0) {
    granted_ns_ = since == 1'000'000'000
                      ? now_ns
                      : granted_ns_ + static_cast<uint64_t>(grant) * 1'000'000'000 / static_cast<uint64_t>(rate_);
    for (const auto& [identity, rule] : rules_) {
      const int64_t more = std::min(grant, rate_ - rule->left.load(std::memory_order_relaxed));
      if (more > 0) rule->left.fetch_add(more, std::memory_order_relaxed);
    }
  }
  // Of versions that no snapshot has any more all records are in the rings: the last release of a snapshot is what its
  // batches' records happened before.
  std::vector<bool> gone;
  for (const auto& version : versions_) gone.push_back(version.use_count() == 1);
  std::atomic_thread_fence(std::memory_order_acquire);
  for (const auto& ring : rings_) {
    LoggedPacket packet;
    // Not what comes meanwhile: workers may be faster than this.
    for (size_t left = ring->waiting(); left > 0 && ring->pop(packet); --left) {
      const auto at = std::lower_bound(versions_.begin(), versions_.end(), packet.version,
                                       [](const auto& version, uint64_t v) { return version->version_ < v; });
      ++(*at)->rules_[packet.slot].rule->logged;
      events.push_back({packet, *at});
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.packet.timestamp_ns < b.packet.timestamp_ns; });
  for (size_t v = versions_.size(); v-- > 0;) {
    if (!gone[v]) continue;
    LoggedRules& version = *versions_[v];
    for (uint32_t s = 0; s < version.rules_.size(); ++s) version.rules_[s].rule->missed += version.missed(s, workers_);
    versions_.erase(versions_.begin() + static_cast<std::ptrdiff_t>(v));
  }
  return events;
}

// Of every rule, in all versions.
void RuleLog::count_missed() const {
  for (const auto& [identity, rule] : rules_) rule->now = rule->missed;
  for (const auto& version : versions_) {
    for (uint32_t s = 0; s < version->rules_.size(); ++s) version->rules_[s].rule->now += version->missed(s, workers_);
  }
}

std::vector<RuleLog::Missed> RuleLog::take_missed() {
  std::vector<Missed> all;
  const std::lock_guard lock(mutex_);
  count_missed();
  for (auto at = rules_.begin(); at != rules_.end();) {
    const std::shared_ptr<LoggedRule>& rule = at->second;
    if (rule->now != rule->told) {
      all.push_back({rule, rule->place, rule->now - rule->told});
      rule->told = rule->now;
    } else if (rule.use_count() == 1) {
      // No version has it any more.
      gone_.logged += rule->logged;
      gone_.missed += rule->missed;
      at = rules_.erase(at);
      continue;
    }
    ++at;
  }
  return all;
}

void RuleLog::wait(const std::stop_token& stop, std::chrono::milliseconds period) {
  std::unique_lock lock(mutex_);
  if (!versions_.empty()) {
    (void)changed_.wait_for(lock, stop, period, [] { return false; });
    return;
  }
  (void)changed_.wait(lock, stop, [this] { return !versions_.empty(); });
}

RuleLog::Sums RuleLog::sums() const {
  const std::lock_guard lock(mutex_);
  count_missed();
  Sums all = gone_;
  for (const auto& [identity, rule] : rules_) {
    all.logged += rule->logged;
    all.missed += rule->now;
  }
  return all;
}

}  // namespace sluice
