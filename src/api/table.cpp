// host only
#include "api/table.h"

#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace sluice::api {
Result<OpenedAcl> OpenedAcl::open(std::shared_ptr<const Image> image, const RulePositions* before) {
  OpenedAcl opened;
  auto view = AclView::open(*image);
  if (!view) return std::move(view).error();
  auto actions = AclActionsView::open(*image);
  if (!actions) return std::move(actions).error();
  auto rules = AclRulesView::open(*image);
  if (!rules) return std::move(rules).error();
  auto source = AclSourceView::open(*image);
  if (!source) return std::move(source).error();
  opened.view = *view;
  opened.actions = *actions;
  opened.rules = *rules;
  opened.source = *source;
  if (image->patches() != nullptr)
    opened.positions = std::make_shared<const RulePositions>(*image, opened.rules, before);
  opened.image = std::move(image);
  return opened;
}

Result<OpenedFib> OpenedFib::open(std::shared_ptr<const Image> image) {
  OpenedFib opened;
  auto names = NextHopNames::open(image->section(SectionTag::kNextHopNames));
  if (!names) return std::move(names).error();
  opened.names = *names;
  auto four = with_fib4(*image, [&](const auto& view) { opened.lookup4 = decltype(opened.lookup4)(view); });
  if (!four) return std::move(four).error();
  auto six = with_fib6(*image, [&](const auto& view) { opened.lookup6 = decltype(opened.lookup6)(view); });
  if (!six) return std::move(six).error();
  opened.image = std::move(image);
  return opened;
}

namespace {

const auto& images_of(const TableSet& tables, const OpenedAcl*) {
  return tables.acls;
}
const auto& images_of(const TableSet& tables, const OpenedFib*) {
  return tables.routes;
}

}  // namespace

// Makes what readers need of a generation before it is published. Its bytes were checked, or are this process's own:
// what can fail is memory.
template <typename Opened>
void Table<Opened>::prepare(Snapshot& snapshot) {
  const auto& now = images_of(snapshot.tables, static_cast<const Opened*>(nullptr)).find(name())->second;
  next_ = std::make_shared<Generation>();
  retired_.reserve(retired_.size() + 1);
  unsure_.reserve(unsure_.size() + 1);
  if constexpr (std::is_same_v<Opened, OpenedAcl>) {
    auto opened = Opened::open(now, positions_.get());
    if (!opened) throw std::bad_alloc();
    if (ledger_ != nullptr) opened->hits = ledger_->of(name(), now);
    positions_ = opened->positions;
    next_->opened = std::move(*opened);
  } else {
    auto opened = Opened::open(now);
    if (!opened) throw std::bad_alloc();
    next_->opened = std::move(*opened);
  }
}

// Makes what was published current, and lets the generation before go once nobody reads it.
template <typename Opened>
void Table<Opened>::take_over() noexcept {
  const uint64_t number = publisher_.generation();
  if (next_ == nullptr || (newest_ != nullptr && newest_->number == number)) return;
  next_->number = number;
  std::shared_ptr<const Generation> before = std::exchange(newest_, std::move(next_));
  current_.store(newest_.get(), std::memory_order_seq_cst);
  if (before == nullptr) return;
  // There is room for it (prepare).
  if (!Readers::wait()) return unsure_.push_back(std::move(before));
  // From here on nobody new takes it.
  retired_.push_back(std::move(before));
  reap();
}

template <typename Opened>
LiveTables& Table<Opened>::live() {
  if (live_ == nullptr) {
    // Only those who publish replace it, one at a time.
    live_ = std::make_unique<LiveTables>(router_, plan_, publisher_, publisher_.current()->tables, TableModels{},
                                         loads_, 0);
  }
  return *live_;
}

template <typename Opened>
void Table<Opened>::reap() {
  std::erase_if(retired_, [](const auto& each) { return each->in_flight.load(std::memory_order_acquire) == 0; });
}

// A patched image has few replicas (tables/replica.h): long work holds two at most.
template <typename Opened>
void Table<Opened>::wait_for_long_work() {
  for (reap(); retired_.size() > 1; reap()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

template <typename Opened>
Result<std::shared_ptr<Table<Opened>>> Table<Opened>::load(TableDeclaration declaration, const TableText& from,
                                                           bool count) {
  constexpr bool kAcl = std::is_same_v<Opened, OpenedAcl>;
  std::shared_ptr<Table> made(new Table());
  InputSet inputs;
  declaration.name = name();
  if (from.bytes) inputs.put(from.name, InputFile::over(*from.bytes, from.name));
  TableModels models;
  TableLoad load;
  auto image = load_table(declaration, nullptr, &load, nullptr, &models, nullptr, &inputs);
  if (!image) return std::move(image).error();
  // Of a file: what is wrong with it is told here.
  Result<void> opens;
  if constexpr (kAcl) {
    if (auto opened = Opened::open(*image, nullptr); !opened) opens = std::move(opened).error();
  } else {
    if (auto opened = Opened::open(*image); !opened) opens = std::move(opened).error();
  }
  if (!opens) return std::move(opens).error();
  TableSet tables;
  (kAcl ? tables.acls : tables.routes)[name()] = std::move(*image);
  if (count) made->ledger_ = std::make_unique<HitLedger>(kCountingSeats);
  made->publisher_.set_prepare([t = made.get()](Snapshot& snapshot) { t->prepare(snapshot); });
  auto first = bind_plan(made->plan_, made->router_, tables);
  if (!first) return std::move(first).error();
  made->publisher_.publish(std::move(*first));
  made->take_over();
  made->loads_.push_back(std::move(load));
  made->live_ = std::make_unique<LiveTables>(made->router_, made->plan_, made->publisher_, std::move(tables),
                                             std::move(models), made->loads_, 0);
  return made;
}

template class Table<OpenedAcl>;
template class Table<OpenedFib>;

}  // namespace sluice::api
