// Every kind of tables that are lists of lines, as it is used: declared, changed while packets pass, saved, read again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/input_file.h"
#include "control/command.h"
#include "control/control.h"
#include "control/live_reload.h"
#include "elements/register_all.h"
#include "exec/engine/engine.h"
#include "graph/click/parser.h"

namespace sluice {

void register_example_table(Registry& registry);  // the skeleton is in no product

namespace {

namespace fs = std::filesystem;

const bool registered = [] {
  Registry registry;
  register_example_table(registry);
  return true;
}();

std::vector<const TableKind*> list_kinds() {
  std::vector<const TableKind*> kinds = table_kinds();
  std::erase_if(kinds, [](const TableKind* kind) { return !kind->is_list(); });
  return kinds;
}

// One table of the kind in a running process: the examples of the kind but the last.
class ListKinds : public ::testing::TestWithParam<std::string> {
 protected:
  ListKinds() : kind_(*find_table_kind(GetParam())) {
    std::string pattern = (fs::temp_directory_path() / "sluice-lists-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    register_elements(registry_);
    if (registry_.find("ExampleTable") == nullptr) register_example_table(registry_);
    for (const std::string& one : kind_.examples) {
      auto entry = kind_.parse(one);
      if (!entry) ADD_FAILURE() << to_string(entry.error()), std::abort();
      entries_.push_back(std::move(*entry));
    }
    last_ = entries_.back();
    entries_.pop_back();
    std::string text = "# of the test\n";
    for (const std::string& entry : entries_) text += entry + "  # kept\n";
    write(text);
    first_ = must(load_generation(graph(), "first", registry_, {.keep_models = true}));
    RunOptions options;
    options.live = true;
    runtime_ = must(Engine::create(first_->router, first_->plan, options));
    runtime_->publisher().publish(must(bind_plan(first_->plan, first_->router, first_->tables)));
    tables_ = std::make_unique<LiveTables>(first_->router, first_->plan, runtime_->publisher(), first_->tables,
                                           std::move(first_->models), first_->loads, 0);
    control_ = std::make_unique<Control>(*runtime_, *tables_, Control::Facts{"test", "cpu"});
  }
  ~ListKinds() override { fs::remove_all(folder_); }

  std::string file() const { return folder_ + "/list"; }
  std::string graph() const {
    return fmt::format("{}(list, FILE {});\nInfiniteSource(LIMIT 0) -> IPInput -> Discard;\n", kind_.element, file());
  }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  std::string read() const {
    std::ifstream in(file());
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  template <typename T>
  static T must(Result<T> result) {
    if (!result) ADD_FAILURE() << to_string(result.error()), std::abort();
    return std::move(*result);
  }
  nlohmann::ordered_json asked(nlohmann::ordered_json request) {
    request["v"] = 1;
    return nlohmann::ordered_json::parse(control_->answer(request));
  }
  nlohmann::ordered_json change(const std::string& lines, bool dry_run = false) {
    return asked({{"command", kind_.option + " change"},
                  {"table", "list"},
                  {"changes", lines},
                  {"name", "changes"},
                  {"dry_run", dry_run}});
  }
  std::string text() { return must(tables_->text(kind_.name, "list")); }
  std::string joined(const std::vector<std::string>& entries) {
    return entries.empty() ? std::string() : fmt::format("{}\n", fmt::join(entries, "\n"));
  }

  const TableKind& kind_;
  std::string folder_, last_;
  std::vector<std::string> entries_;
  Registry registry_;
  std::unique_ptr<GraphGeneration> first_;
  std::unique_ptr<Engine> runtime_;
  std::unique_ptr<LiveTables> tables_;
  std::unique_ptr<Control> control_;
};

TEST_P(ListKinds, ReadTheirOwnEntriesBack) {
  EXPECT_EQ(text(), joined(entries_));
  for (const std::string& entry : entries_) EXPECT_EQ(must(kind_.parse(entry)), entry);
  EXPECT_EQ(tables_->loads().front().kind, kind_.name);
  EXPECT_EQ(tables_->loads().front().entries, entries_.size());
}

TEST_P(ListKinds, ChangeAsAWholeOrNotAtAll) {
  const uint64_t before = runtime_->publisher().generation();
  EXPECT_FALSE(change("add " + last_ + "\nadd \n")["ok"].get<bool>());
  EXPECT_FALSE(change("add " + last_ + "\nadd " + last_ + "\n")["ok"].get<bool>());
  EXPECT_FALSE(change("delete " + last_ + "\n")["ok"].get<bool>());
  EXPECT_FALSE(change("put " + last_ + "\n")["ok"].get<bool>());
  EXPECT_TRUE(change("add " + last_ + "\n", true)["ok"].get<bool>());
  EXPECT_EQ(runtime_->publisher().generation(), before);
  EXPECT_EQ(text(), joined(entries_));
  EXPECT_TRUE(change("add " + last_ + "\ndelete " + entries_[0] + "  # gone\n")["ok"].get<bool>());
  EXPECT_EQ(runtime_->publisher().generation(), before + 1);
  entries_.erase(entries_.begin());
  entries_.push_back(last_);
  EXPECT_EQ(text(), joined(entries_));
  // Of which nothing is left.
  for (const std::string& entry : entries_) EXPECT_TRUE(change("delete " + entry)["ok"].get<bool>());
  EXPECT_EQ(text(), "");
}

TEST_P(ListKinds, AreSavedWithTheirComments) {
  ASSERT_TRUE(change("delete " + entries_[0] + "\nadd " + last_)["ok"].get<bool>());
  EXPECT_TRUE(tables_->unsaved(kind_.name, "list"));
  ASSERT_TRUE(asked({{"command", "save"}})["ok"].get<bool>());
  std::string expected = "# of the test\n";
  for (size_t i = 1; i < entries_.size(); ++i) expected += entries_[i] + "  # kept\n";
  EXPECT_EQ(read(), expected + last_ + "\n");
  EXPECT_FALSE(tables_->unsaved(kind_.name, "list"));
}

TEST_P(ListKinds, AreReplacedByAFileOrAnImage) {
  const std::string image = folder_ + "/image";
  ASSERT_TRUE(must(build_list(kind_, {last_})).write(image).ok());
  auto input = must(InputFile::open(image));
  ASSERT_TRUE(tables_->replace_list(kind_, "list", input, false).ok());
  EXPECT_EQ(text(), last_ + "\n");
  auto lines = must(InputFile::open(file()));
  ASSERT_TRUE(tables_->replace_list(kind_, "list", lines, false).ok());
  EXPECT_EQ(text(), joined(entries_));
}

TEST_P(ListKinds, RefuseADamagedImage) {
  const Image whole = must(build_list(kind_, entries_));
  const Image other = must(build_list(kind_, {last_}));
  EXPECT_TRUE(open_list(kind_, whole).ok());
  // The entries of one, and the lookup structure of another.
  ImageBuilder builder(list_image_kind(kind_));
  const auto put = [&](SectionTag tag, const Image& from) { return builder.add(tag, "", 1, from.section(tag).size()); };
  const size_t as_text = put(SectionTag::kListText, whole), as_lookup = put(SectionTag::kListLookup, other);
  ASSERT_TRUE(builder.allocate().ok());
  std::ranges::copy(whole.section(SectionTag::kListText), builder.data(as_text).begin());
  std::ranges::copy(other.section(SectionTag::kListLookup), builder.data(as_lookup).begin());
  EXPECT_FALSE(open_list(kind_, builder.finish()).ok());
}

TEST_P(ListKinds, AreReadAgainWhereTheirFilesChange) {
  const auto reload = [&] {
    LiveTables::Reload again(*tables_, false);
    auto next = must(load_generation(graph(), "next", registry_, {.keep_models = true, .in_use = &again}));
    EXPECT_TRUE(again.commit(std::move(*next)).ok());
    return again.tables().front().how;
  };
  write(read());
  EXPECT_EQ(reload(), TableReload::How::kUnchanged);
  write(last_ + "\n");
  EXPECT_EQ(reload(), TableReload::How::kReplaced);
  EXPECT_EQ(text(), last_ + "\n");
  // A change that is in no file goes.
  ASSERT_TRUE(change("add " + entries_[0])["ok"].get<bool>());
  EXPECT_EQ(reload(), TableReload::How::kReplaced);
  EXPECT_EQ(text(), last_ + "\n");
}

TEST_P(ListKinds, HaveCommands) {
  for (const char* verb : {" change", " replace"}) EXPECT_NE(find_command(kind_.option + verb), nullptr) << verb;
  EXPECT_TRUE(Control::may_change({{"command", kind_.option + " change"}}));
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const TableKind* kind : list_kinds()) all.push_back(kind->name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, ListKinds, ::testing::ValuesIn(names()), [](const auto& one) { return one.param; });

}  // namespace
}  // namespace sluice
