// Tables that are read again: what nobody has written stays, what changed takes effect whole or not at all.
#include "control/live_reload.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "elements/register_all.h"
#include "exec/engine/engine.h"
#include "formats/native_rules.h"
#include "graph/click/parser.h"
#include "net/text.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using How = TableReload::How;

// What is looked at so much later may have been read long after it was written.
void settle(std::vector<TableLoad>& loads) {
  for (TableLoad& load : loads) {
    for (FileStamp& stamp : load.read) stamp.looked_ns += 2 * FileStamp::kGrain;
  }
}

std::string many_rules(unsigned n) {
  std::string text;
  for (unsigned i = 0; i < n; ++i)
    text += fmt::format("deny tcp from 10.{}.{}.0/24 to 0.0.0.0/0 port {}\n", i >> 8, i & 255, 1 + i % 1000);
  return text + "permit from any to any\n";
}

class LiveReload : public ::testing::Test {
 protected:
  LiveReload() {
    std::string pattern = (fs::temp_directory_path() / "sluice-reload-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    register_elements(registry_);
    write("acl", many_rules(1000));
    write("more", "deny udp from any to any port 53\n");
    write("small", "include \"more\"\npermit from any to any\n");
    write("rib4", "10.0.0.0/8 via 192.0.2.1\n");
    write("rib6", "2001:db8::/32 via 192.0.2.2\n");
    write("adj", "192.0.2.1 02:00:00:00:00:01 02:00:00:00:00:02 0\n192.0.2.2 02:00:00:00:00:01 02:00:00:00:00:03 1\n");
  }
  ~LiveReload() override { fs::remove_all(folder_); }

  std::string graph(const std::string& large = {}) const {
    return fmt::format(
        "AclTable(large, FILE {0}/acl{1}); AclTable(small, FILE {0}/small); RouteTable(fib, FILE {0}/rib4, FILE "
        "{0}/rib6); "
        "AdjacencyTable(adj, ROUTES fib, FILE {0}/adj);\nInfiniteSource(LIMIT 0) -> IPInput -> ACL(large) -> "
        "ACL(small) -> IPRoute(fib) -> AdjacencyRewrite(adj) -> ToMemory;\n",
        folder_, large);
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }

  template <typename T>
  static T must(Result<T> result) {
    if (!result) ADD_FAILURE() << to_string(result.error()), std::abort();
    return std::move(*result);
  }

  void start(size_t max_bytes = 0, const std::string& text = {}) {
    tables_.reset();
    runtime_.reset();
    first_ = must(load_generation(text.empty() ? graph() : text, "first", registry_, {.keep_models = true}));
    RunOptions options;
    options.live = options.count_hits = true;
    runtime_ = must(Engine::create(first_->router, first_->plan, options));
    runtime_->publisher().publish(must(bind_plan(first_->plan, first_->router, first_->tables)));
    settle(first_->loads);
    tables_ = std::make_unique<LiveTables>(first_->router, first_->plan, runtime_->publisher(), first_->tables,
                                           std::move(first_->models), first_->loads, max_bytes);
  }

  // What became of each table, by name; empty: an error, which is `error_`.
  std::map<std::string, TableReload> reload(bool all = false, const std::string& text = {}) {
    LiveTables::Reload again(*tables_, all);
    auto next =
        load_generation(text.empty() ? graph() : text, "next", registry_, {.keep_models = true, .in_use = &again});
    auto done = Result<uint64_t>(0);
    if (next.ok()) {
      settle((*next)->loads);
      done = again.commit(std::move(**next));
    }
    error_ = !next.ok() ? to_string(next.error()) : !done.ok() ? to_string(done.error()) : std::string();
    std::map<std::string, TableReload> found;
    if (!error_.empty()) return found;
    EXPECT_EQ(*done, runtime_->publisher().generation());
    for (TableReload& one : again.tables()) found.emplace(one.table, one);
    return found;
  }
  std::string list(const std::string& table) { return must(tables_->text("acl", table)); }
  const Image* image(const std::string& table) const { return tables_->tables().acls.find(table)->second.get(); }

  std::string folder_, error_;
  Registry registry_;
  std::unique_ptr<GraphGeneration> first_;
  std::unique_ptr<Engine> runtime_;
  std::unique_ptr<LiveTables> tables_;
};

TEST_F(LiveReload, LeavesTablesAloneWhoseFilesNobodyHasWritten) {
  start();
  const TableSet before = tables_->tables();
  for (int twice = 0; twice < 2; ++twice) {
    const auto done = reload();
    ASSERT_EQ(done.size(), 4u) << error_;
    for (const auto& [table, one] : done) EXPECT_EQ(one.how, How::kUnchanged) << table;
    EXPECT_EQ(done.at("large").entries, 1001u);
    EXPECT_EQ(tables_->tables().acls, before.acls);
    EXPECT_EQ(tables_->tables().routes, before.routes);
    EXPECT_EQ(tables_->tables().adjacencies, before.adjacencies);
    EXPECT_EQ(tables_->changed("acl", "large"), 0u);
  }
  // Changes go on from there.
  ASSERT_TRUE(tables_->change_routes("fib", "add 11.0.0.0/8 via 192.0.2.2\n", "c", false).ok());
  ASSERT_TRUE(tables_->change_acl("large", "delete 1\n", "c", false).ok());
  EXPECT_EQ((*tables_->rules("large"))->size(), 1000u);
}

TEST_F(LiveReload, ReadsEverythingWhereItIsAskedTo) {
  start();
  const auto looked = [&] {
    std::map<std::string, uint64_t> at;
    for (const TableLoad& load : tables_->loads()) at[load.name] = load.read.front().looked_ns;
    return at;
  };
  const auto before = looked();
  // settle() moves a time by whole grains, and a look at another time not.
  const auto read = [&](const std::string& table) {
    return (looked().at(table) - before.at(table)) % FileStamp::kGrain != 0;
  };
  for (const auto& [table, one] : reload()) EXPECT_FALSE(read(table)) << table;
  for (const auto& [table, one] : reload(true)) EXPECT_TRUE(read(table)) << table;
  EXPECT_EQ(list("small"), "deny udp from any to any port 53\npermit from any to any\n");
}

// Files that were written and say what they said: nothing is built, no packet meets another generation, and the next
// reload need not read them.
TEST_F(LiveReload, TakesFilesThatSayTheSameForUnchanged) {
  start();
  const TableSet before = tables_->tables();
  const auto again = [&](bool all) {
    const auto done = reload(all);
    EXPECT_EQ(done.size(), 4u) << error_;
    for (const auto& [table, one] : done) EXPECT_EQ(one.how, How::kUnchanged) << table;
    EXPECT_EQ(runtime_->publisher().generation(), 1u);
    EXPECT_EQ(tables_->tables().acls, before.acls);
    EXPECT_EQ(tables_->tables().routes, before.routes);
    EXPECT_EQ(tables_->tables().adjacencies, before.adjacencies);
    EXPECT_EQ(done.at("large").entries, 1001u);
    EXPECT_EQ(done.at("fib").entries, 2u);
    EXPECT_EQ(done.at("adj").entries, 2u);
  };
  again(true);
  const auto text_of = [&](const char* name) {
    std::ifstream in(folder_ + "/" + name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const char* name : {"acl", "more", "small", "rib4", "rib6", "adj"}) {
    SCOPED_TRACE(name);
    write(name, text_of(name));
    again(false);
    again(false);
  }
  // Changes go on from there, and a reload takes them back, by what differs.
  ASSERT_TRUE(tables_->change_routes("fib", "add 11.0.0.0/8 via 192.0.2.2\n", "c", false).ok());
  ASSERT_TRUE(tables_->change_acl("large", "delete 1\n", "c", false).ok());
  ASSERT_TRUE(tables_->change_adjacencies("adj", "delete 192.0.2.2\n", "c", false).ok());
  const auto done = reload(true);
  ASSERT_EQ(done.size(), 4u) << error_;
  EXPECT_EQ(done.at("large").how, How::kRules);
  EXPECT_EQ(done.at("small").how, How::kUnchanged);
  EXPECT_EQ(done.at("fib").how, How::kReplaced);
  EXPECT_EQ(done.at("adj").how, How::kReplaced);
  EXPECT_EQ(done.at("adj").entries, 2u);
  EXPECT_EQ(runtime_->publisher().generation(), 5u);
  // The adjacency alone: its routes stay.
  ASSERT_TRUE(tables_->change_adjacencies("adj", "delete 192.0.2.2\n", "c", false).ok());
  const auto last = reload(true);
  ASSERT_EQ(last.size(), 4u) << error_;
  EXPECT_EQ(last.at("fib").how, How::kUnchanged);
  EXPECT_EQ(last.at("adj").how, How::kReplaced);
  EXPECT_EQ(last.at("adj").entries, 2u);
}

// What was written just before it was read may have been written again since, and look the same.
TEST_F(LiveReload, ReadsAgainWhatWasWrittenWhileItWasRead) {
  start();
  FileStamp stamp = FileStamp::of(folder_ + "/acl");
  EXPECT_FALSE(stamp.unchanged());
  stamp.looked_ns += 2 * FileStamp::kGrain;
  EXPECT_TRUE(stamp.unchanged());
  stamp.changed_ns = stamp.looked_ns;  // a clock that was set back
  EXPECT_FALSE(stamp.unchanged());
  stamp = FileStamp::of("/dev/null");
  stamp.looked_ns += 2 * FileStamp::kGrain;
  EXPECT_FALSE(stamp.unchanged());
  EXPECT_FALSE(FileStamp().unchanged());
}

TEST_F(LiveReload, NoticesEveryWayToWriteAFile) {
  start();
  const std::string small = folder_ + "/small";
  const auto same_length = [&] { write("small", "include \"more\"\ndeny   from any to any\n"); };
  same_length();
  auto done = reload();
  EXPECT_EQ(done.at("small").how, How::kReplaced) << error_;
  EXPECT_EQ(done.at("large").how, How::kUnchanged);
  EXPECT_EQ(done.at("fib").how, How::kUnchanged);
  EXPECT_EQ(list("small"), "deny udp from any to any port 53\ndeny from any to any\n");
  // Another file takes its name, as old as it was and as long.
  write("other", "include \"more\"\npermit from any to any\n");
  fs::last_write_time(folder_ + "/other", fs::last_write_time(small));
  fs::rename(folder_ + "/other", small);
  EXPECT_EQ(reload().at("small").how, How::kReplaced);
  EXPECT_EQ(list("small"), "deny udp from any to any port 53\npermit from any to any\n");
  // Its time is put back behind a change.
  const auto time = fs::last_write_time(small);
  same_length();
  fs::last_write_time(small, time);
  EXPECT_EQ(reload().at("small").how, How::kReplaced);
  EXPECT_EQ(list("small"), "deny udp from any to any port 53\ndeny from any to any\n");
  // A file that is included, one of several, and one that is gone.
  write("more", "deny udp from any to any port 54\n");
  EXPECT_EQ(reload().at("small").how, How::kReplaced);
  EXPECT_EQ(list("small"), "deny udp from any to any port 54\ndeny from any to any\n");
  write("rib6", "2001:db8::/33 via 192.0.2.2\n");
  EXPECT_EQ(reload().at("fib").how, How::kReplaced);
  fs::remove(small);
  EXPECT_TRUE(reload().empty());
  EXPECT_NE(error_.find("small"), std::string::npos);
}

TEST_F(LiveReload, PutsBackWhatARequestChanged) {
  start();
  for (const char* table : {"large", "small"})
    ASSERT_TRUE(tables_->change_acl(table, "add at 1 permit icmp from any to any\n", "c", false).ok());
  ASSERT_TRUE(tables_->change_routes("fib", "add 11.0.0.0/8 via 192.0.2.2\n", "c", false).ok());
  const auto done = reload();
  ASSERT_EQ(done.size(), 4u) << error_;
  EXPECT_EQ(done.at("large").how, How::kRules);
  EXPECT_EQ(done.at("large").rules.deleted, 1u);
  EXPECT_EQ(done.at("large").rules.added, 0u);
  EXPECT_EQ(done.at("small").how, How::kReplaced);
  EXPECT_EQ(done.at("fib").how, How::kReplaced);
  EXPECT_EQ(list("large"), many_rules(1000));
  EXPECT_EQ(list("small"), "deny udp from any to any port 53\npermit from any to any\n");
  EXPECT_EQ((*tables_->routes("fib"))->prefixes(), 2u);
  EXPECT_FALSE(tables_->unsaved("acl", "large"));
  for (const auto& [table, one] : reload()) EXPECT_EQ(one.how, How::kUnchanged) << table;
}

TEST_F(LiveReload, ReadsAFileOfSeveralListsForThoseThatChanged) {
  write("small", "permit tcp from any to any port 22 state new keep-state\npermit from any to any state established\n");
  const std::string text = fmt::format(
      "AclTable(new, FILE {0}/small, FORMAT auto@new); AclTable(established, FILE {0}/small, FORMAT "
      "auto@established);\n"
      "InfiniteSource(LIMIT 0) -> IPInput -> c :: ConnTrack(new) -> ACL(new) -> out :: ToMemory; c[1] -> "
      "ACL(established) -> out;\n",
      folder_);
  start(0, text);
  for (const auto& [table, one] : reload(false, text)) EXPECT_EQ(one.how, How::kUnchanged) << table;
  ASSERT_TRUE(tables_->change_acl("established", "add deny from any to any\n", "request", false).ok());
  auto done = reload(false, text);
  ASSERT_EQ(done.size(), 2u) << error_;
  EXPECT_EQ(done.at("new").how, How::kUnchanged);
  EXPECT_EQ(done.at("established").how, How::kReplaced);
  EXPECT_EQ(list("established"), "permit from any to any\n");
  write("small", "permit tcp from any to any port 23 state new keep-state\ndeny from any to any state established\n");
  done = reload(false, text);
  ASSERT_EQ(done.size(), 2u) << error_;
  for (const auto& [table, one] : done) EXPECT_EQ(one.how, How::kReplaced) << table;
  EXPECT_EQ(list("new"), "permit tcp from any to any port 23 keep-state\n");
  EXPECT_EQ(list("established"), "deny from any to any\n");
}

TEST_F(LiveReload, KeepsStateOnlyInAListByWhichConnectionsBegin) {
  write("small", "permit tcp from any to any port 22 keep-state\n");
  start(0,
        fmt::format("AclTable(new, FILE {0}/small, FORMAT auto@new); AclTable(established, FILE {0}/small, FORMAT "
                    "auto@established);\nInfiniteSource(LIMIT 0) -> IPInput -> c :: ConnTrack(new) -> ACL(new) -> out "
                    ":: ToMemory; c[1] -> ACL(established) -> out;\n",
                    folder_));
  const auto said = [&](const std::string& table, const std::string& text) {
    auto change = tables_->change_acl(table, text, "c", false);
    return change.ok() ? std::string() : to_string(change.error());
  };
  EXPECT_EQ(said("new", "add permit udp from any to any port 53 keep-state\n"), "");
  const std::string wrong = said("established",
                                 "delete 1\nadd permit udp from any to any KEEP-STATE port 5x3 # keep-state\n"
                                 "replace 1 permit icmp from any to any keep-state log\n");
  EXPECT_NE(wrong.find("c:2:32: error: the rule keeps the state of its connection; no ConnTrack has this list"),
            std::string::npos)
      << wrong;
  EXPECT_NE(wrong.find("c:2:48: error"), std::string::npos) << wrong;  // what else is wrong there
  EXPECT_NE(wrong.find("c:3:39: error: the rule keeps the state"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("  add permit udp from any to any KEEP-STATE port 5x3"), std::string::npos) << wrong;
  // What came with the file goes by its text.
  EXPECT_EQ(
      said("established", "add permit udp from any to any\ndelete permit tcp from any to any port 22 keep-state\n"),
      "");
  EXPECT_EQ(list("established"), "permit udp from any to any\n");
}

TEST_F(LiveReload, ChangesALongListByTheRulesThatDiffer) {
  start();
  write("acl", "# a comment moves all lines\npermit udp from any to any\n" + many_rules(1000));
  auto done = reload();
  ASSERT_EQ(done.size(), 4u) << error_;
  EXPECT_EQ(done.at("large").how, How::kRules);
  EXPECT_EQ(done.at("large").rules.added, 1u);
  EXPECT_EQ(done.at("large").rules.deleted, 0u);
  EXPECT_EQ(list("large"), "permit udp from any to any\n" + many_rules(1000));
  EXPECT_EQ((*tables_->rules("large"))->at(2).line, 3u);
  EXPECT_EQ(tables_->changed("acl", "large"), runtime_->publisher().generation());
  // One that has little in common with it is built anew, and one of another algorithm, too.
  write("acl", many_rules(700));
  done = reload();
  EXPECT_EQ(done.at("large").how, How::kReplaced) << error_;
  EXPECT_EQ(list("large"), many_rules(700));
  done = reload(false, graph(", ALGORITHM linear"));
  EXPECT_EQ(done.at("large").how, How::kReplaced) << error_;
  EXPECT_EQ(list("large"), many_rules(700));
}

TEST_F(LiveReload, ChangesNothingWhereAnythingIsWrong) {
  start();
  // A version by patches is there, and another one is made of it and not published.
  ASSERT_TRUE(tables_->change_acl("large", "delete 1\n", "c", false).ok());
  const std::string before = list("large");
  const Image* const used = image("large");
  const uint64_t generation = runtime_->publisher().generation();
  write("rib4", "10.0.0.0/88 via 192.0.2.1\n");
  write("adj", "wrong\n");
  EXPECT_TRUE(reload().empty());
  EXPECT_NE(error_.find("rib4:1"), std::string::npos) << error_;
  EXPECT_EQ(list("large"), before);
  EXPECT_EQ(image("large"), used);
  EXPECT_EQ(runtime_->publisher().generation(), generation);
  EXPECT_TRUE(tables_->unsaved("acl", "large"));
  ASSERT_TRUE(tables_->change_acl("large", "add at 1 deny gre from any to any\n", "c", false).ok());
  EXPECT_EQ(list("large"), "deny gre from any to any\n" + before);
  EXPECT_EQ(configured_rules(*tables_->tables().acls.find("large")->second)->rules.size(), 1001u);
  write("rib4", "10.0.0.0/8 via 192.0.2.1\n");
  write("adj", "192.0.2.1 02:00:00:00:00:01 02:00:00:00:00:02 0\n");
  const auto done = reload();
  ASSERT_EQ(done.size(), 4u) << error_;
  EXPECT_EQ(list("large"), many_rules(1000));
  EXPECT_EQ(done.at("adj").entries, 1u);
}

TEST_F(LiveReload, ResolvesAnAdjacencyTableThroughRoutesThatStay) {
  write("rib4", "10.0.0.0/8 via 192.0.2.1\n192.0.2.1/32 via 198.51.100.1\n");
  write("adj", "198.51.100.1 02:00:00:00:00:01 02:00:00:00:00:02 0\n192.0.2.2 02:00:00:00:00:01 02:00:00:00:00:03 1\n");
  start();
  write("adj", "198.51.100.1 02:00:00:00:00:01 02:00:00:00:00:09 0\n192.0.2.2 02:00:00:00:00:01 02:00:00:00:00:03 1\n");
  const auto done = reload();
  ASSERT_EQ(done.size(), 4u) << error_;
  EXPECT_EQ(done.at("fib").how, How::kUnchanged);
  EXPECT_EQ(done.at("adj").how, How::kReplaced);
  EXPECT_EQ(done.at("adj").entries, 3u);  // 192.0.2.1 by its route
  // And one whose routes are other ones is made anew with them.
  write("rib4", "10.0.0.0/8 via 192.0.2.7\n10.0.0.0/9 via 192.0.2.2\n");
  EXPECT_EQ(reload().at("adj").how, How::kReplaced) << error_;
}

TEST_F(LiveReload, IsRefusedWhereBothWouldNotFit) {
  start();
  const size_t bytes = tables_->bytes();
  start(bytes + bytes / 2);
  EXPECT_EQ(reload(true).size(), 4u) << error_;  // nothing is made
  write("rib4", "10.0.0.0/8 via 192.0.2.2\n");
  write("acl", many_rules(700));
  EXPECT_TRUE(reload().empty());
  EXPECT_NE(error_.find("more than the limit"), std::string::npos) << error_;
  write("rib4", "10.0.0.0/8 via 192.0.2.1\n");
  write("acl", many_rules(1000));
  const auto done = reload();
  ASSERT_EQ(done.size(), 4u) << error_;
  EXPECT_EQ(done.at("fib").how, How::kUnchanged);
  EXPECT_EQ(done.at("large").how, How::kUnchanged);
}

}  // namespace
}  // namespace sluice
