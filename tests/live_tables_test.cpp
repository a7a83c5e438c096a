// Tables of a running process change, by text, by file and by request: whole or not at all, and every packet meets one
// version.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "control/control.h"
#include "control/control_socket.h"
#include "control/live_tables.h"
#include "control/report.h"
#include "control/request.h"
#include "elements/register_all.h"
#include "formats/native_rules.h"
#include "formats/rule_files.h"
#include "generate/random.h"
#include "net/packet_builder.h"
#include "net/text.h"
#include "ports/pcap/capture_writer.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/linear.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/lpm/algorithms.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/devices.h"
#include "tests/testing/failing_allocations.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::kWatched;
using testing::TempDir;

// A runtime over a Click text, with live tables and control.
struct Live {
  Registry registry;
  Router router;
  Plan plan;
  std::unique_ptr<Engine> runtime;
  std::unique_ptr<LiveTables> tables;
  std::unique_ptr<Control> control;

  explicit Live(const std::string& text, RunOptions options = {}, size_t max_bytes = 0) {
    register_elements(registry);
    auto graph = parse_click(text, "test.click");
    auto made = graph.ok() ? build_router(*graph, registry, text) : Result<Router>(graph.error());
    if (!made.ok()) {
      ADD_FAILURE() << to_string(made.error());
      return;
    }
    router = std::move(*made);
    plan = *make_plan(router);
    TableReport report;
    TableModels models;
    auto loaded = load_tables(router, {}, &report, {}, &models);
    if (!loaded.ok()) {
      ADD_FAILURE() << to_string(loaded.error());
      return;
    }
    options.live = options.count_hits = true;
    runtime = *Engine::create(router, plan, options);
    runtime->publisher().publish(*bind_plan(plan, router, *loaded));
    tables = std::make_unique<LiveTables>(router, plan, runtime->publisher(), std::move(*loaded), std::move(models),
                                          report.loads, max_bytes);
    control = std::make_unique<Control>(*runtime, *tables, Control::Facts{"test", "cpu"});
  }

  std::string list(const std::string& table = "edge") {
    auto rules = tables->rules(table);
    return rules.ok() ? to_native((*rules)->set()) : to_string(rules.error());
  }
  Json ask(Json request) {
    request["v"] = 1;
    return Json::parse(control->answer(request.dump()));
  }
};

std::string error_of(const Result<TableChange>& change) {
  return change.ok() ? "no error" : to_string(change.error());
}

// The list or the table anew, from files.
Result<TableChange> replace_acl(LiveTables& tables, const std::string& path) {
  auto file = InputFile::open(path);
  if (!file.ok()) return std::move(file).error();
  return tables.replace_acl("edge", *file, {}, false);
}
Result<TableChange> replace_routes(LiveTables& tables, const std::string& path) {
  InputSet inputs;
  return tables.replace_routes("fib", {path}, inputs, false);
}

struct AnyChange {
  const char* kind;
  std::string text;
};
Result<TableChange> make_change(Live& live, const AnyChange& change, bool dry_run) {
  const std::string_view kind = change.kind;
  if (kind == "acl") return live.tables->change_acl("edge", change.text, "c", dry_run);
  if (kind == "acl file") {
    auto file = InputFile::open(change.text);
    if (!file.ok()) return std::move(file).error();
    return live.tables->replace_acl("edge", *file, {}, dry_run);
  }
  if (kind == "routes") return live.tables->change_routes("fib", change.text, "c", dry_run);
  if (kind == "routes file") {
    InputSet inputs;
    return live.tables->replace_routes("fib", {change.text}, inputs, dry_run);
  }
  return live.tables->change_adjacencies("adj", change.text, "c", dry_run);
}

class LiveTablesTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { testing::write_file(dir_ / name, text); }
  std::string graph(const std::string& algorithm = "tuple_space") const {
    write("edge.acl",
          "deny udp from any to any port 53\npermit tcp from any to any port 80\npermit ip from any to any\n");
    write("rib", "8.0.0.0/8 a\n8.8.0.0/16 b\n2001:db8::/32 a\n");
    write("adj",
          "a 02:00:00:00:00:0a 02:00:00:00:00:01 1\nb 02:00:00:00:00:0b 02:00:00:00:00:01 2\n"
          "c 02:00:00:00:00:0c 02:00:00:00:00:01 3\n");
    return fmt::format(
        "AclTable(edge, FILE {0}, ALGORITHM {3}); RouteTable(fib, FILE {1}); AdjacencyTable(adj, FILE {2}, ROUTES "
        "fib);\n"
        "InfiniteSource(LIMIT 0) -> IPInput -> ACL(edge) -> IPRoute(fib) -> DecIPTTL -> AdjacencyRewrite(adj) -> "
        "ToMemory;\n",
        dir_ / "edge.acl", dir_ / "rib", dir_ / "adj", algorithm);
  }
  TempDir dir_;
};

TEST_F(LiveTablesTest, AnAccessListByTheLine) {
  Live live(graph());
  auto change = live.tables->change_acl("edge", "add at 1 deny tcp from 10.0.0.1 to any\n", "x", false);
  ASSERT_TRUE(change.ok()) << error_of(change);
  EXPECT_EQ(change->generation, 2u);
  EXPECT_EQ(change->entries_before, 3u);
  EXPECT_EQ(change->entries_after, 4u);
  EXPECT_GT(change->bytes_after, 0u);
  const std::string all = live.list();
  EXPECT_EQ(all.rfind("deny tcp from 10.0.0.1", 0), 0u) << all;
  // All kinds of lines, groups, comments; positions are those of their moment.
  change = live.tables->change_acl("edge",
                                   "# today\ndefine web = 80, 443\n\ndelete 1\n"
                                   "replace 2 permit tcp from any to any port web # both\n"
                                   "add permit icmp from any to any\ndelete deny udp from any to any port 53\n"
                                   "add at 1 deny ip from 10.9.0.0/16 to any\n",
                                   "today.txt", false);
  ASSERT_TRUE(change.ok()) << error_of(change);
  EXPECT_EQ(live.list(),
            to_native(*parse_native_rules("deny ip from 10.9.0.0/16 to any\npermit tcp from any to any port 80\n"
                                          "permit tcp from any to any port 443\npermit ip from any to any\n"
                                          "permit icmp from any to any\n",
                                          "want")));
  EXPECT_EQ(live.tables->changed("acl", "edge"), 3u);
  EXPECT_EQ(live.runtime->publisher().generation(), 3u);
}

TEST_F(LiveTablesTest, ReportWrongLinesAtTheirPlacesAndChangeNothing) {
  Live live(graph());
  const std::string before = live.list();
  const auto fault = [&](const std::string& text) {
    return error_of(live.tables->change_acl("edge", text, "c", false));
  };
  struct Case {
    const char *text, *says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"ad permit ip from any to any", "c:1:1: error: 'ad' is not a change"},
           {"ad permit ip from any to any", "did you mean 'add'?"},
           {"\nadd permit ip from any to 10.0.0.0/99", "c:2:27: error"},
           {"add at 3x permit ip from any to any", "c:1:8: error: '3x' is not a position"},
           {"add at 5 permit ip from any to any", "position 5 is past the end: the list has 3 rules"},
           {"delete 4", "position 4 is past the end"},
           {"replace 4 permit ip from any to any", "position 4 is past the end"},
           {"replace permit ip from any to any", "'permit' is not a position"},
           {"delete deny udp from any to any port 54", "the list has no such rule"},
           {"delete", "the rule is missing"},
           {"add", "the rule is missing"},
           {"include \"x\"", "is not a change"},
           {"delete 0", "'0' is not an action"},
       }) {
    SCOPED_TRACE(c.text);
    const std::string said = fault(c.text);
    EXPECT_NE(said.find(c.says), std::string::npos) << said;
  }
  // The line is shown as it was written, and all findings come together.
  const std::string said = fault("add permitt ip from any to any\nfoo\nadd deny ip from nowhere to any\n");
  EXPECT_NE(said.find("  add permitt ip from any to any"), std::string::npos) << said;
  EXPECT_NE(said.find("c:2:1"), std::string::npos) << said;
  EXPECT_NE(said.find("c:3:18"), std::string::npos) << said;
  // One wrong line of many undoes all.
  EXPECT_NE(fault("delete 1\ndelete 3\n").find("c:2:1"), std::string::npos);
  EXPECT_NE(error_of(live.tables->change_acl("egde", "delete 1", "c", false)).find("did you mean 'edge'?"),
            std::string::npos);
  write("bad.acl", "permit ip from any to any\npermit tcp from any to any port 90-80\n");
  EXPECT_NE(error_of(replace_acl(*live.tables, dir_ / "bad.acl")).find("bad.acl:2:"), std::string::npos);
  EXPECT_NE(error_of(replace_acl(*live.tables, dir_ / "none")).find("none"), std::string::npos);
  EXPECT_EQ(live.list(), before);
  EXPECT_EQ(live.runtime->publisher().generation(), 1u);
}

class LiveTablesSteps : public LiveTablesTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, LiveTablesSteps,
                         ::testing::Values("tuple_space", "tuple_merge", "linear", "bitvec", "auto", "auto-gpu"));

TEST_P(LiveTablesSteps, GiveWhatAVectorGives) {
  Live live(graph(GetParam()));
  Random random(7);
  RuleSet want = *read_rules_file(dir_ / "edge.acl");
  const auto random_rule = [&] {
    return fmt::format("mark({}) tcp from 10.0.0.0/{} to any port {}", random.below(1000), 8 + random.below(3),
                       random.below(20));
  };
  const auto rule_of = [](const std::string& text) { return parse_native_rules(text, "t")->rules[0]; };
  const auto same = [](const AclRule& a, const AclRule& b) { return to_native(a) == to_native(b); };
  for (int round = 0; round < (kWatched ? 5 : 40); ++round) {
    std::string text;
    for (uint64_t n = 1 + random.below(12); n != 0; --n) {
      const std::string rule = random_rule();
      const size_t size = want.rules.size();
      const auto at = static_cast<ptrdiff_t>(random.below(size + 1));
      switch (random.below(5)) {
        case 0:
          text += "add " + rule + "\n";
          want.rules.push_back(rule_of(rule));
          break;
        case 1:
          text += fmt::format("add at {} {}\n", at + 1, rule);
          want.rules.insert(want.rules.begin() + at, rule_of(rule));
          break;
        case 2:
          if (at == static_cast<ptrdiff_t>(size)) break;
          text += fmt::format("delete {}\n", at + 1);
          want.rules.erase(want.rules.begin() + at);
          break;
        case 3: {
          const AclRule wanted = rule_of(rule);
          const auto found =
              std::find_if(want.rules.begin(), want.rules.end(), [&](const AclRule& r) { return same(r, wanted); });
          if (found == want.rules.end()) break;
          text += "delete " + rule + "\n";
          want.rules.erase(found);
          break;
        }
        default:
          if (at == static_cast<ptrdiff_t>(size)) break;
          text += fmt::format("replace {} {}\n", at + 1, rule);
          want.rules[static_cast<size_t>(at)] = rule_of(rule);
      }
    }
    auto change = live.tables->change_acl("edge", text, "steps", false);
    ASSERT_TRUE(change.ok()) << text << error_of(change);
    ASSERT_EQ(live.list(), to_native(want)) << text;
    // What packets meet is that list.
    const Image& image = *live.tables->tables().acls.at("edge");
    const auto view = AclView::open(image);
    const auto actions = AclActionsView::open(image);
    ASSERT_TRUE(view.ok() && actions.ok());
    const auto flat = *flatten_all(want);
    for (int i = 0; i < 100; ++i) {
      FlowKey key{};
      key.family = 4;
      key.protocol = 6;
      key.bits = FlowKey::kHasPorts;
      key.src_lo = 0x0a000000 + random.below(1 << 24);
      key.dst_port = static_cast<uint16_t>(random.below(24));
      const auto first =
          std::find_if(flat.begin(), flat.end(), [&](const AclMatchRule& rule) { return matches(rule, key); });
      const AclAction got = actions->action(view->lookup(key));
      if (first == flat.end()) {
        EXPECT_EQ(got.verb, AclVerb::kNone);
      } else {
        const AclRule& rule = want.rules[static_cast<size_t>(first - flat.begin())];
        ASSERT_EQ(got.verb, rule.verb);
        ASSERT_EQ(got.mark, rule.mark);
      }
    }
  }
}

// A long list that is replaced by one much like it: the image takes patches, and all that can be asked of it is as if
// it were new.
TEST_F(LiveTablesTest, AWholeListMuchLikeTheOneBefore) {
  Live live(graph("tuple_merge"));
  const auto line = [](uint64_t i) {
    return fmt::format("{} tcp from 10.{}.{}.0/24 to 192.0.2.{} port {}\n", i % 3 == 0 ? "deny" : "permit",
                       i / 250 % 250, i % 250, i % 7, i % 11);
  };
  std::vector<std::string> lines;
  for (uint64_t i = 0; i < 1500; ++i) lines.push_back(line(i));
  const auto replace = [&](const std::string& name) {
    std::string text;
    for (const std::string& each : lines) text += each;
    write(name, text);
    const std::shared_ptr<const PatchLog> before = live.tables->tables().acls.at("edge")->patches();
    const auto change = replace_acl(*live.tables, dir_ / name);
    EXPECT_TRUE(change.ok()) << error_of(change);
    EXPECT_EQ(change->entries_after, lines.size());
    const Image& image = *live.tables->tables().acls.at("edge");
    // What is shown of it, and what packets and logs meet.
    const auto want = parse_native_rules(text, dir_ / name);
    EXPECT_EQ(live.list(), to_native(*want));
    const auto rules = live.tables->rules("edge");
    const auto view = AclView::open(image);
    const auto actions = AclActionsView::open(image);
    const auto source = AclSourceView::open(image);
    EXPECT_TRUE(view.ok() && actions.ok() && source.ok());
    for (size_t i = 0; i < lines.size(); i += i % 100 == 0 ? 1 : 33) {
      EXPECT_EQ((*rules)->at(i + 1).line, i + 1);
      EXPECT_EQ((*rules)->files()[(*rules)->at(i + 1).file], dir_ / name);
      FlowKey key{};
      key.family = 4;
      key.bits = FlowKey::kHasPorts;
      const AclRule& rule = want->rules[i];
      key.protocol = rule.protocol;
      key.src_lo = rule.src.address.lo + 9;
      key.dst_lo = rule.dst.address.lo;
      key.dst_port = rule.dst_port_low;
      const uint32_t found = view->lookup(key);
      EXPECT_EQ(actions->action(found).verb, rule.verb);
      EXPECT_EQ(source->file(found), dir_ / name);
      EXPECT_EQ(source->line(found), i + 1);
    }
    return image.patches() != nullptr && image.patches() == before;
  };
  EXPECT_FALSE(replace("a.acl"));
  lines.insert(lines.begin(), "deny udp from any to any port 9\n");
  EXPECT_TRUE(replace("a.acl"));
  lines.erase(lines.begin() + 700);
  lines[3] = line(5000);
  lines.push_back(line(5001));
  EXPECT_TRUE(replace("a.acl"));
  EXPECT_FALSE(replace("b.acl")) << "a file that is not known";
  EXPECT_TRUE(replace("a.acl")) << "two files take turns";
  lines.erase(lines.begin());
  EXPECT_TRUE(replace("b.acl"));
  std::rotate(lines.begin(), lines.begin() + 20, lines.end());
  EXPECT_TRUE(replace("a.acl"));
  // By rule in between, and back.
  ASSERT_TRUE(
      live.tables->change_acl("edge", "delete 9\nadd at 2 permit ip from 10.0.0.0/8 to any\n", "c", false).ok());
  EXPECT_TRUE(replace("a.acl"));
  // What is not to be done changes nothing.
  const std::string before = live.list();
  const auto dry = make_change(live, {"acl file", dir_ / "b.acl"}, true);
  ASSERT_TRUE(dry.ok()) << error_of(dry);
  EXPECT_EQ(dry->generation, 0u);
  EXPECT_EQ(live.list(), before);
  lines.resize(800);
  EXPECT_FALSE(replace("a.acl")) << "too much is gone";
  lines.resize(40);
  EXPECT_FALSE(replace("a.acl")) << "short lists are built anew";
}

// `auto`: what is best when the list is read; of a list that changes what takes patches, or is short.
// What asks for what is there already leaves all as it is, by whatever way it comes.
TEST_P(LiveTablesSteps, PublishNoGenerationWithoutAChange) {
  for (const bool long_list : {false, true}) {
    const std::string text = graph(GetParam());
    std::string list = testing::read_file(dir_ / "edge.acl");
    for (int i = 0; long_list && i < 600; ++i)
      list += fmt::format("deny tcp from 10.{}.{}.0/24 to any\n", i / 250, i % 250);
    write("edge.acl", list);
    write("same.acl", list);
    Live live(text);
    const auto nothing = [&](const AnyChange& change) {
      for (const bool dry_run : {true, false}) {
        SCOPED_TRACE(std::string(change.kind) + ": " + change.text);
        const TableSet before = live.tables->tables();
        const uint64_t generation = live.runtime->publisher().generation();
        const std::string rules = live.list();
        const auto done = make_change(live, change, dry_run);
        ASSERT_TRUE(done.ok()) << error_of(done);
        EXPECT_FALSE(done->differs);
        EXPECT_EQ(done->generation, dry_run ? 0 : generation);
        EXPECT_EQ(done->entries_before, done->entries_after);
        EXPECT_EQ(live.runtime->publisher().generation(), generation);
        EXPECT_EQ(live.tables->tables().acls, before.acls);
        EXPECT_EQ(live.tables->tables().routes, before.routes);
        EXPECT_EQ(live.tables->tables().adjacencies, before.adjacencies);
        EXPECT_EQ(live.list(), rules);
      }
    };
    const auto all = [&] {
      nothing({"acl file", dir_ / "edge.acl"});
      nothing({"acl file",
               dir_ / "../" + std::filesystem::path(dir_ / "").parent_path().filename().string() + "/edge.acl"});
      nothing({"acl", ""});
      nothing({"acl", "# nothing\n"});
      nothing({"acl", "replace 2 permit tcp from any to any port 80\n"});
      nothing({"routes file", dir_ / "rib"});
      nothing({"routes", ""});
      nothing({"adjacency", "set a 02:00:00:00:00:0a 02:00:00:00:00:01 1\n"});
      nothing({"adjacency", "set unused 02:00:00:00:00:0a 02:00:00:00:00:01 1\n"});
      EXPECT_FALSE(live.tables->unsaved("acl", "edge"));
      EXPECT_FALSE(live.tables->unsaved("routes", "fib"));
    };
    all();
    ASSERT_EQ(live.runtime->publisher().generation(), 1u);
    // Nor where tables have changed and changed back.
    for (const AnyChange& change :
         {AnyChange{"acl", "add at 1 permit icmp from any to any\n"}, AnyChange{"acl file", dir_ / "edge.acl"},
          AnyChange{"routes", "add 9.0.0.0/8 b\n"}, AnyChange{"routes file", dir_ / "rib"}}) {
      const auto done = make_change(live, change, false);
      ASSERT_TRUE(done.ok()) << error_of(done);
      EXPECT_TRUE(done->differs);
    }
    ASSERT_EQ(live.runtime->publisher().generation(), 5u);
    nothing({"acl file", dir_ / "edge.acl"});
    nothing({"routes file", dir_ / "rib"});
    ASSERT_TRUE(make_change(live, {"routes", "add 9.0.0.0/8 b\n"}, false).ok());
    nothing({"routes", "add 9.0.0.0/8 b\n"});
    // The answer says so, also to a client that has another name for the file.
    const Json sent{{"name", "edge.acl"}, {"folder", dir_ / ""}, {"text", list}};
    Json answer = live.ask({{"command", "acl replace"}, {"table", "edge"}, {"file", sent}});
    EXPECT_EQ(answer["result"]["differs"], false) << answer;
    EXPECT_EQ(answer["result"]["committed"], true);
    // Rules that are written elsewhere are a change: traces and logs name their places.
    for (const bool moved : {false, true}) {
      if (moved) write("same.acl", "# a comment\n" + list);
      answer = live.ask({{"command", "acl replace"}, {"table", "edge"}, {"file", dir_ / "same.acl"}});
      EXPECT_EQ(answer["result"]["differs"], true) << answer;
      EXPECT_EQ((*live.tables->rules("edge"))->at(1).line, moved ? 2u : 1u);
      const RuleList& rules = **live.tables->rules("edge");
      EXPECT_EQ(rules.files()[rules.at(1).file], dir_ / "same.acl");
    }
  }
}

// Who looks while a table is read and built finds what packets meet, and does not wait. A lock that is given on in
// turn makes this exact: who waits for it when the change lets it go has it then, and at no other time.
TEST_F(LiveTablesTest, ShowTheTablesOfNowWithoutWaiting) {
  std::string many;
  for (int i = 0; i < 700; ++i) many += fmt::format("deny tcp from 10.{}.{}.0/24 to any\n", i / 250, i % 250);
  struct Case {
    const char* algorithm;
    AnyChange change;
    int windows;  // in which the change lets others look: where it reads, where it builds
  };
  const std::string text = graph();
  write("many.acl", many + "permit ip from any to any\n");
  write("other.rib", "8.0.0.0/8 b\n2001:db8::/32 a\n");
  for (const Case& one :
       {Case{"tuple_space", {"acl", "add at 1 permit icmp from any to any\n"}, 1},
        Case{"tuple_space", {"acl file", dir_ / "many.acl"}, 2},
        Case{"tuple_merge", {"acl", "add at 1 permit icmp from any to any\n"}, 1},
        Case{"tuple_merge", {"acl file", dir_ / "many.acl"}, 2}, Case{"auto", {"acl file", dir_ / "many.acl"}, 2},
        Case{"auto", {"routes", "add 9.0.0.0/8 b\n"}, 1}, Case{"auto", {"routes file", dir_ / "other.rib"}, 2}}) {
    SCOPED_TRACE(fmt::format("{} {}: {}", one.algorithm, one.change.kind, one.change.text));
    Live live(graph(one.algorithm));
    TurnLock lock;
    live.tables->set_lock(lock);
    std::atomic<bool> done{false};
    const std::string list_before = live.list();
    const size_t routes_before = (*live.tables->routes("fib"))->prefixes();
    int looks = 0;
    // With the lock held. The next one waits behind the change for its turn before the change goes on.
    std::function<void(int)> look = [&](int n) {
      std::jthread next;
      if (n < one.windows) {
        while (lock.waiting() != 1 && !done) std::this_thread::yield();
        next = std::jthread([&, n] {
          lock.lock();
          look(n + 1);
        });
        while (lock.waiting() != 2 && !done) std::this_thread::yield();
      }
      if (n > 0) {
        ++looks;
        EXPECT_FALSE(done);
        EXPECT_EQ(live.runtime->publisher().generation(), 1u);
        EXPECT_EQ(live.list(), list_before);
        EXPECT_EQ((*live.tables->routes("fib"))->prefixes(), routes_before);
        EXPECT_TRUE(live.ask({{"command", "show tables"}})["ok"].get<bool>());
        EXPECT_TRUE(live.ask({{"command", "show rules"}, {"hits", true}})["ok"].get<bool>());
        EXPECT_TRUE(live.ask({{"command", "show routes"}, {"for", "8.8.8.8"}})["ok"].get<bool>());
        EXPECT_TRUE(live.ask({{"command", "show adjacencies"}})["ok"].get<bool>());
      }
      lock.unlock();
    };
    lock.lock();
    std::jthread change([&] {
      const std::lock_guard mine(lock);
      const auto made = make_change(live, one.change, false);
      EXPECT_TRUE(made.ok()) << error_of(made);
      EXPECT_TRUE(made->differs);
      done = true;
    });
    look(0);
    change.join();
    EXPECT_EQ(looks, one.windows);
    EXPECT_EQ(live.runtime->publisher().generation(), 2u);
    EXPECT_TRUE(live.list() != list_before || (*live.tables->routes("fib"))->prefixes() != routes_before);
  }
}

TEST_F(LiveTablesTest, AutoChoosesAgainWhenAListHasGrownOrShrunk) {
  const auto line = [](size_t i) {
    return fmt::format("permit tcp from 10.{}.{}.0/24 to 192.0.2.{} port {}\n", i / 250 % 250, i % 250, i % 7, i % 11);
  };
  const auto lines = [&](const char* verb, size_t from, size_t to) {
    std::string text;
    for (size_t i = from; i < to; ++i) text += std::string(verb) + line(i);
    return text;
  };
  Live live([&] {
    const std::string text = graph("auto");
    write("edge.acl", lines("", 0, 300));
    return text;
  }());
  const auto algorithm = [&](const std::string& text) {
    auto change = live.tables->change_acl("edge", text, "c", false);
    EXPECT_TRUE(change.ok()) << error_of(change);
    EXPECT_EQ(change->algorithm, acl_image_algorithm(*live.tables->tables().acls.at("edge")));
    EXPECT_EQ(change->algorithm, live.tables->loads()[0].algorithm);
    return change->algorithm;
  };
  const auto best = [&] { return choose_acl((*live.tables->rules("edge"))->set(), TableTarget::kCpu)->algorithm; };
  const std::string few = live.tables->loads()[0].algorithm;
  EXPECT_EQ(few, best());
  ASSERT_NE(few, TupleMergeAcl::kName) << "or there is nothing to choose";
  EXPECT_EQ(algorithm("delete 1\n"), few) << "299: what is short is built anew";
  EXPECT_EQ(algorithm(lines("add ", 300, 660)), few) << "twice as many and some are not too many yet";
  EXPECT_EQ(algorithm(lines("add ", 660, 700)), TupleMergeAcl::kName);
  std::string erase;
  for (int i = 0; i < 200; ++i) erase += "delete 1\n";
  EXPECT_EQ(algorithm(erase), TupleMergeAcl::kName) << "499: the choice stays";
  EXPECT_EQ(algorithm(erase), few) << "299: less than half, and some";
  EXPECT_EQ(best(), few);
  EXPECT_EQ(algorithm(lines("add ", 700, 900)), few) << "499: it does not flip";
  // Another list whole is chosen for as at the start.
  write("more.acl", lines("", 0, 2000));
  auto change = replace_acl(*live.tables, dir_ / "more.acl");
  ASSERT_TRUE(change.ok()) << error_of(change);
  EXPECT_EQ(change->algorithm, best());
  EXPECT_EQ(algorithm("delete 7\n"), TupleMergeAcl::kName);

  // For a device, a long list that nobody changes may be of an algorithm that is slow to build.
  const std::string text = graph("auto-gpu");
  write("edge.acl", lines("", 0, 2000));
  Live device(text);
  EXPECT_EQ(device.tables->loads()[0].algorithm,
            choose_acl((*device.tables->rules("edge"))->set(), TableTarget::kGpu)->algorithm);
  change = device.tables->change_acl("edge", "delete 7\n", "c", false);
  ASSERT_TRUE(change.ok()) << error_of(change);
  EXPECT_EQ(change->algorithm, TupleMergeAcl::kName);
}

// What a change of one rule costs does not go by the length of the list.
TEST_F(LiveTablesTest, OneRuleOfManyCostsItselfAlone) {
  const size_t rules = kWatched ? 10'000 : 100'000;
  const std::string text = graph("tuple_merge");
  std::string list;
  for (size_t i = 0; i < rules; ++i)
    list += fmt::format("permit tcp from 10.{}.{}.0/24 to any port {}\n", i / 250 % 250, i % 250, i % 5000);
  write("edge.acl", list);
  Live live(text);
  const auto change = [&](const std::string& line) {
    auto changed = live.tables->change_acl("edge", line, "c", false);
    ASSERT_TRUE(changed.ok()) << error_of(changed);
  };
  change("delete 5\n");  // the list becomes one that changes
  change("delete 500\n");
  const RuleList& model = **live.tables->rules("edge");
  for (const char* line : {"replace 77 deny tcp from 10.77.3.0/24 to any port 60\n", "delete 5000\n",
                           "add at 9000 deny tcp from 10.9.9.0/24 to any port 61\n"}) {
    SCOPED_TRACE(line);
    const HitLedger::Work before = live.runtime->hits().work();
    const uint64_t model_before = model.work();
    const std::shared_ptr<const Image> image_before = live.tables->tables().acls.at("edge");
    change(line);
    const HitLedger::Work after = live.runtime->hits().work();
    EXPECT_LE(after.rules - before.rules, 64u);
    EXPECT_LE(after.blocks - before.blocks, 2u);
    EXPECT_LE(model.work() - model_before, 1024u);
    const Image& image = *live.tables->tables().acls.at("edge");
    ASSERT_EQ(image.patches(), image_before->patches());
    const auto patches = image.patches()->between(image_before->version(), image.version());
    ASSERT_TRUE(patches.has_value());
    size_t bytes = 0;
    for (const Patch& p : *patches) bytes += p.bytes;
    EXPECT_GT(bytes, 0u);
    EXPECT_LE(bytes, 16'384u);
  }
}

TEST_F(LiveTablesTest, RandomRoutesAreWhatLookupsFind) {
  Live live(graph());
  Random random(9);
  using Prefixes = std::map<std::pair<uint32_t, uint8_t>, std::string>;
  // What the file says, and what was said since: that comes first, and what it hid comes back.
  Prefixes file = {{{0x08000000, 8}, "a"}, {{0x08080000, 16}, "b"}}, said, want = file;
  for (int round = 0; round < (kWatched ? 4 : 25); ++round) {
    std::string text;
    for (uint64_t n = 1 + random.below(10); n != 0; --n) {
      const auto length = static_cast<uint8_t>(8 + random.below(25));
      const auto address = static_cast<uint32_t>((0x08000000 + random.below(1 << 24)) & high_mask32(length));
      if (random.below(3) != 0 || want.size() < 3) {
        const std::string hop = fmt::format("h{}", random.below(12));
        text += fmt::format("add {} {}\n", to_string(IpPrefix{IpAddress{0, address, 4}, length}), hop);
        said[{address, length}] = want[{address, length}] = hop;
      } else {
        const auto gone = std::next(want.begin(), static_cast<ptrdiff_t>(random.below(want.size())));
        text += fmt::format("delete {}\n", to_string(IpPrefix{IpAddress{0, gone->first.first, 4}, gone->first.second}));
        const auto prefix = gone->first;
        if (said.erase(prefix) == 0) file.erase(prefix);
        want.erase(gone);
        if (const auto back = file.find(prefix); back != file.end()) want.insert(*back);
      }
    }
    auto change = live.tables->change_routes("fib", text, "c", false);
    ASSERT_TRUE(change.ok()) << text << error_of(change);
    const Image& image = *live.tables->tables().routes.at("fib");
    const auto names = NextHopNames::open(image.section(SectionTag::kNextHopNames));
    ASSERT_TRUE(names.ok());
    const auto opened = with_fib4(image, [&](const auto& view) {
      for (int i = 0; i < 200; ++i) {
        const auto address = static_cast<uint32_t>(0x08000000 + random.below(1 << 24));
        std::string expected = "-";
        int longest = -1;
        for (const auto& [prefix, hop] : want) {
          if (((address ^ prefix.first) & high_mask32(prefix.second)) == 0 && prefix.second > longest) {
            longest = prefix.second;
            expected = hop;
          }
        }
        ASSERT_EQ(names->name(view.lookup(address)), expected);
      }
    });
    ASSERT_TRUE(opened.ok()) << to_string(opened.error());
    ASSERT_EQ(live.tables->changed("routes", "fib"), live.runtime->publisher().generation());
  }
}

TEST_F(LiveTablesTest, ADryRunAndALimitLeaveThingsAsTheyAre) {
  Live live(graph());
  const size_t bytes = live.tables->bytes();
  auto dry = live.tables->change_acl("edge", "delete 1\n", "c", true);
  ASSERT_TRUE(dry.ok()) << error_of(dry);
  EXPECT_EQ(dry->generation, 0u);
  EXPECT_EQ(dry->entries_after, 2u);
  EXPECT_EQ(dry->bytes_peak, bytes + dry->bytes_after);
  EXPECT_EQ(live.tables->bytes(), bytes);
  EXPECT_EQ(live.runtime->publisher().generation(), 1u);
  std::string many;
  for (int i = 0; i < 3000; ++i) many += fmt::format("permit tcp from 10.0.0.0/8 to any port {}\n", i);
  write("many.acl", many);
  Live small(graph(), {}, bytes + 20'000);
  const std::string before = small.list();
  const std::string said = error_of(replace_acl(*small.tables, dir_ / "many.acl"));
  EXPECT_NE(said.find("more than the limit"), std::string::npos) << said;
  EXPECT_EQ(small.list(), before);
  EXPECT_TRUE(small.tables->change_acl("edge", "delete 1\n", "c", false).ok()) << "what fits is taken";
}

// All that can be seen of the tables: their entries, images, what they take, and the report.
struct Seen {
  std::string rules, routes, adjacencies, tables;
  std::vector<const Image*> images;
  uint64_t generation = 0;
  size_t bytes = 0;
  bool operator==(const Seen&) const = default;
};
Seen seen(Live& live) {
  Seen s;
  s.rules = live.list();
  const auto routes = live.tables->routes("fib");
  if (routes.ok() && *routes != nullptr) {
    const Rib rib = (*routes)->best_routes();
    for (const Route4& r : rib.routes4()) s.routes += fmt::format("{:x}/{} {}\n", r.address, r.length, r.next_hop);
    for (const Route6& r : rib.routes6())
      s.routes += fmt::format("{:x}:{:x}/{} {}\n", r.hi, r.lo, r.length, r.next_hop);
    for (const std::string& name : rib.next_hop_names()) s.routes += name + "\n";
  }
  for (const auto& [name, hops] : live.tables->next_hops_of("fib")) {
    for (uint32_t id = 1; id <= hops->count(); ++id) {
      s.adjacencies += fmt::format("{}: {}", id, hops->group(id).flags);
      for (const auto& m : hops->group(id).members) s.adjacencies += fmt::format(" {}*{}", m.neighbour, m.weight);
    }
    for (const auto& n : hops->neighbours()) s.adjacencies += fmt::format(" port {}", n.port);
  }
  s.tables = live.ask({{"command", "show tables"}}).dump();
  const TableSet& set = live.tables->tables();
  for (const auto* tables : {&set.acls, &set.routes, &set.adjacencies}) {
    for (const auto& [name, image] : *tables) s.images.push_back(image.get());
  }
  s.generation = live.runtime->publisher().generation();
  s.bytes = live.tables->bytes();
  return s;
}
// What packets meet is what the models say.
void expect_consistent(Live& live) {
  const TableSet& set = live.tables->tables();
  const RuleSet rules = (*live.tables->rules("edge"))->set();
  const auto linear_image = LinearAcl::build(rules);
  ASSERT_TRUE(linear_image.ok());
  const auto linear = LinearView::open(*linear_image);
  const auto view = AclView::open(*set.acls.find("edge")->second);
  const auto have = AclActionsView::open(*set.acls.find("edge")->second), want = AclActionsView::open(*linear_image);
  ASSERT_TRUE(linear.ok() && view.ok() && have.ok() && want.ok());
  for (uint32_t i = 0; i < 256; ++i) {
    FlowKey key;
    key.family = 4;
    key.src_lo = 0x0a000000 + i;
    key.protocol = i % 2 == 0 ? 6 : 17;
    key.bits = FlowKey::kHasPorts;
    key.dst_port = static_cast<uint16_t>(i % 3 == 0 ? 53 : 80);
    const uint32_t found = view->lookup(key), expected = linear->lookup(key);
    ASSERT_EQ(found == 0, expected == 0);
    if (found != 0) {
      ASSERT_EQ(have->action(found).verb, want->action(expected).verb);
    }
  }
  const SourcedRib& rib = **live.tables->routes("fib");
  const Image& routes = *set.routes.find("fib")->second;
  const auto adjacencies = open_adjacencies(*set.adjacencies.find("adj")->second);
  ASSERT_TRUE(adjacencies.ok());
  const auto hops = live.tables->next_hops_of("fib");
  ASSERT_EQ(hops.size(), 1u);
  ASSERT_TRUE(with_fib4(routes, [&](const auto& fib) {
                for (uint32_t a : {0x08000001u, 0x08080001u, 0x09000001u, 0x09000101u, 0x0a000001u}) {
                  const uint32_t next_hop = fib.lookup(a);
                  ASSERT_EQ(next_hop, rib.match({0, a, 4}).next_hop) << std::hex << a;
                  if (next_hop == 0) continue;
                  const auto& group = hops[0].second->group(next_hop);
                  const Adjacency* to = adjacencies->select(next_hop, 0);
                  ASSERT_EQ(to == nullptr, group.members.empty());
                  if (to != nullptr) {
                    ASSERT_EQ(to->port, hops[0].second->neighbours()[group.members[0].neighbour].port);
                  }
                }
              }).ok());
}

class LiveTablesFailures : public LiveTablesTest {
 protected:
  // Right and wrong ones of every kind, and the files that they name.
  std::vector<AnyChange> changes() const {
    write("other.acl", "permit tcp from 10.0.0.0/25 to any\ndeny ip from any to any\n");
    write("other.rib", "8.0.0.0/8 b\n9.0.0.0/8 new\n9.0.1.0/24 a\n2001:db8::/32 c\n");
    return {
        {"acl", "add at 1 deny tcp from 10.0.0.1 to any\nreplace 2 permit udp from any to any port 53\ndelete 3\n"},
        {"acl", "delete 1\ndelete 17\n"},
        {"acl file", dir_ / "other.acl"},
        {"acl file", dir_ / "missing.acl"},
        {"routes", "add 9.0.0.0/8 c\nappend 9.0.1.0/24 via 8.8.0.1\ndelete 8.8.0.0/16\n"},
        {"routes", "add 9.0.0.0/8 a\ndelete 7.0.0.0/8\n"},
        {"routes file", dir_ / "other.rib"},
        {"routes file", dir_ / "missing.rib"},
        {"adjacency", "set a 02:00:00:00:00:0d 02:00:00:00:00:01 7\ndelete b\n"},
        {"adjacency", "set a 02:00:00:00:00\n"},
    };
  }
};

TEST_F(LiveTablesFailures, ADryRunOfAnyChangeChangesNothing) {
  for (const char* algorithm : {"tuple_space", "tuple_merge"}) {
    Live live(graph(algorithm));
    const auto all = changes();
    // Over images as they were loaded, then over those that changes have made.
    for (int round = 0; round < 2; ++round) {
      for (const AnyChange& change : all) {
        SCOPED_TRACE(change.text);
        const Seen before = seen(live);
        const auto dry = make_change(live, change, true);
        EXPECT_TRUE(seen(live) == before);
        if (round == 0 && change.text == all[0].text) {
          EXPECT_TRUE(dry.ok()) << error_of(dry);
        }
      }
      expect_consistent(live);
      for (const char* kind : {"acl", "routes", "adjacency"}) {
        const auto first =
            std::find_if(all.begin(), all.end(), [&](const AnyChange& c) { return c.kind == std::string_view(kind); });
        const auto done = make_change(live, *first, false);
        if (round == 0) {
          EXPECT_TRUE(done.ok()) << error_of(done);
        }
      }
      expect_consistent(live);
    }
  }
}

// What is there leaves no room for a change: neither a dry run nor a change leaves a trace.
TEST_F(LiveTablesFailures, ADryRunThatDoesNotFitChangesNothing) {
  Live live(graph());
  const auto all = changes();
  for (const AnyChange& change : all) (void)make_change(live, change, false);
  const size_t bytes = live.tables->bytes();
  Live full(graph(), {}, bytes + 64);
  for (const AnyChange& change : all) (void)make_change(full, change, false);
  size_t refused = 0;
  for (const AnyChange& change : all) {
    SCOPED_TRACE(change.text);
    const Seen before = seen(full);
    refused += make_change(full, change, true).ok() ? 0u : 1u;
    EXPECT_TRUE(seen(full) == before);
  }
  EXPECT_GT(refused, 4u);
  expect_consistent(full);
}

// Memory runs out at every point of every change in turn: it is made whole, or nothing of it, and the next one goes by
// what is there.
TEST_F(LiveTablesFailures, OutOfMemoryAtAnyPointChangesAllOrNothing) {
  struct Case {
    const char* algorithm;
    bool much_alike;  // a long list, that a file replaces by one much like it
  };
  for (const Case& one : {Case{"tuple_space", false}, Case{"tuple_merge", false}, Case{"tuple_merge", true}}) {
    const char* const algorithm = one.algorithm;
    const bool much_alike = one.much_alike;
    const auto make = [&] {
      const std::string text = graph(algorithm);
      if (!much_alike) return std::make_unique<Live>(text);
      std::string list;
      for (int i = 0; i < 600; ++i) list += fmt::format("deny tcp from 10.{}.{}.0/24 to any\n", i / 250, i % 250);
      write("edge.acl", list);
      auto made = std::make_unique<Live>(text);
      write("edge.acl", "permit tcp from 10.0.0.0/25 to any\n" + list + "permit ip from any to any\n");
      return made;
    };
    for (const AnyChange& change : much_alike ? std::vector<AnyChange>{{"acl file", dir_ / "edge.acl"}} : changes()) {
      SCOPED_TRACE(std::string(algorithm) + ": " + change.text);
      auto live = make();
      // Images that are patched are there.
      for (const AnyChange& first :
           {AnyChange{"acl", "add permit icmp from any to any\n"}, AnyChange{"routes", "add 9.0.0.0/8 b\n"},
            AnyChange{"adjacency", "set c 02:00:00:00:00:0e 02:00:00:00:00:01 9\n"}}) {
        const auto made = make_change(*live, first, false);
        ASSERT_TRUE(made.ok()) << error_of(made);
      }
      size_t failures = 0;
      for (uint64_t n = 0;; n += 1 + n / (kWatched ? 2 : 8)) {
        Seen before = seen(*live);
        bool ok = false, failed = false;
        {
          const testing::FailAllocation fail(n);
          try {
            ok = make_change(*live, change, false).ok();
          } catch (const std::bad_alloc&) {
          }
          failed = testing::FailAllocation::failed();
        }
        if (!failed) break;  // it has all the memory that it wants
        ++failures;
        if (!ok) {
          Seen after = seen(*live);
          // Images that are kept for the next change may have gone.
          after.bytes = before.bytes = 0;
          after.tables = before.tables = "";
          ASSERT_TRUE(after == before) << "allocation " << n;
        }
        expect_consistent(*live);
        // The next changes of each kind say what they mean.
        for (const AnyChange& next :
             {AnyChange{"acl", "add at 1 deny udp from 10.0.0.3 to any\n"}, AnyChange{"acl", "delete 1\n"},
              AnyChange{"routes", "add 9.0.1.0/24 a\n"}, AnyChange{"routes", "delete 9.0.1.0/24\n"},
              AnyChange{"adjacency", "set a 02:00:00:00:00:0a 02:00:00:00:00:01 1\n"}}) {
          (void)make_change(*live, next, false);
          expect_consistent(*live);
        }
        ASSERT_FALSE(HasFailure()) << "allocation " << n;
        if (ok) live = make();
      }
      EXPECT_GT(failures, 2u);
    }
  }
}

TEST_F(LiveTablesTest, RoutesByTheLineAndByTheFile) {
  Live live(graph());
  const auto routes = [&] {
    std::string all;
    const Json answer = live.ask({{"command", "show routes"}, {"for", "8.8.8.8"}});
    EXPECT_EQ(answer["ok"], true) << answer.dump();
    for (const Json& r : answer["result"]["routes"])
      all += r["prefix"].get<std::string>() + " " + r["next_hop"].get<std::string>() + ";";
    return all;
  };
  EXPECT_EQ(routes(), "8.8.0.0/16 b;8.0.0.0/8 a;");
  // c is a next hop that no route had: the adjacencies must follow.
  auto change = live.tables->change_routes("fib", "add 8.8.8.0/24 via c # new\ndelete 8.8.0.0/16\n", "c", false);
  ASSERT_TRUE(change.ok()) << error_of(change);
  EXPECT_EQ(change->entries_after, 3u);
  EXPECT_EQ(routes(), "8.8.8.0/24 c;8.0.0.0/8 a;");
  const auto view = open_adjacencies(*live.tables->tables().adjacencies.at("adj"));
  ASSERT_TRUE(view.ok());
  const auto* way = view->select((*live.tables->routes("fib"))->next_hops().find("c"), 0);
  ASSERT_NE(way, nullptr);
  EXPECT_EQ(way->port, 3);
  write("other", "8.8.8.8/32 d\n");
  ASSERT_TRUE(replace_routes(*live.tables, dir_ / "other").ok());
  EXPECT_EQ(routes(), "8.8.8.8/32 d;");
  const auto fault = [&](const std::string& text) {
    return error_of(live.tables->change_routes("fib", text, "c", false));
  };
  struct Case {
    const char *text, *says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"\ndel 8.8.8.8", "c:2:1: error: 'del' is not a change"},
           {"delete 8.8.8.1/24", "c:1:8: error: '8.8.8.1/24' has bits set past its length"},
           {"delete 9.0.0.0/8", "there is no route for 9.0.0.0/8"},
           {"delete x", "'x' is not a prefix"},
           {"add", "the prefix is missing"},
           {"\nadd 8.8.8.8/33 a", "c:2:5"},
           {"delete 8.8.8.8 9.9.9.9", "c:1:16: error: more than a prefix"},
           {"delete 8.8.8.8/32 source bgp", "there is no source 'bgp' of routes"},
           {"delete 8.8.8.8/32 metric 7", "there is no route for 8.8.8.8/32 of that source and metric"},
           {"add 8.8.8.8/32 a preference 256", "c:1:29: error: '256' is not a valid preference"},
           {"add 8.8.8.8/32 a source", "c:1:18: error: a source has a name of 1 to 64 bytes"},
           {"add 8.8.8.8/32 a metric x", "'x' is not a valid metric"},
           {"add multicast 224.0.0.0/4", "this route cannot be used"},
       }) {
    SCOPED_TRACE(c.text);
    const std::string said = fault(c.text);
    EXPECT_NE(said.find(c.says), std::string::npos) << said;
  }
  EXPECT_EQ(routes(), "8.8.8.8/32 d;");
}

TEST_F(LiveTablesTest, RoutesOfManySourcesAndWhatTheyLeadTo) {
  Live live(graph());
  const auto change = [&](const char* text) {
    const auto done = live.tables->change_routes("fib", text, "c", false);
    EXPECT_TRUE(done.ok()) << text << error_of(done);
  };
  const auto best = [&] {
    const Json answer = live.ask({{"command", "show routes"}, {"for", "8.8.0.0/16"}, {"count", 1}});
    EXPECT_EQ(answer["result"]["total"], 2u);
    return answer["result"]["routes"][0];
  };
  EXPECT_EQ(best()["candidates"].size(), 1u);
  EXPECT_EQ(best()["why"], "the only one");
  change("add 8.8.0.0/16 c source ospf metric 20\nadd 8.8.0.0/16 a source ospf metric 30\n");
  EXPECT_EQ(best()["next_hop"], "b") << "the file's preference is 1, that of ospf 110";
  EXPECT_EQ(best()["why"], "preference 1 before 110 of ospf");
  change("delete 8.8.0.0/16\n");
  EXPECT_EQ(best()["next_hop"], "c");
  EXPECT_EQ(best()["why"], "metric 20 before 30 of ospf");
  change("append 8.8.0.0/16 b source ospf metric 20\n");
  EXPECT_EQ(best()["next_hop"], "c+b");
  const Json to = best()["adjacencies"][0];
  ASSERT_EQ(to["neighbours"].size(), 2u) << to.dump();
  EXPECT_EQ(to["neighbours"][0]["port"], 3u);
  EXPECT_EQ(to["neighbours"][1]["share"], 0.5);
  change("add 8.8.0.0/16 10.9.9.9\nadd 10.9.0.0/16 a\n");
  EXPECT_EQ(best()["adjacencies"][0]["steps"][0], "10.9.9.9: by the route 10.9.0.0/16 to a");
  EXPECT_EQ(best()["adjacencies"][0]["neighbours"][0]["port"], 1u);
  // What the neighbour of `a` is changes alone; the routes stay.
  auto moved = live.ask({{"command", "adjacencies change"},
                         {"table", "adj"},
                         {"changes", "set a 02:00:00:00:00:aa 02:00:00:00:00:01 9\n"},
                         {"name", "c"}});
  EXPECT_EQ(moved["ok"], true) << moved.dump();
  EXPECT_EQ(best()["adjacencies"][0]["neighbours"][0]["port"], 9u);
  const auto adjacency = open_adjacencies(*live.tables->tables().adjacencies.at("adj"));
  ASSERT_TRUE(adjacency.ok());
  const uint32_t hop = (*live.tables->routes("fib"))->next_hops().find("10.9.9.9");
  ASSERT_NE(adjacency->select(hop, 0), nullptr);
  EXPECT_EQ(adjacency->select(hop, 0)->port, 9);
  EXPECT_NE(error_of(live.tables->change_adjacencies("adj", "set a drop now\nput b drop\n", "n", false))
                .find("n:2:1: error: 'put' is not a change"),
            std::string::npos);
  // A dry run and a change that is wrong leave all of it as it is.
  EXPECT_TRUE(live.tables->change_routes("fib", "delete all source ospf\ndelete 10.9.0.0/16\n", "c", true).ok());
  EXPECT_FALSE(live.tables->change_routes("fib", "delete all source ospf\ndelete 1.2.3.4\n", "c", false).ok());
  EXPECT_EQ(best()["candidates"].size(), 3u);
  EXPECT_EQ(best()["adjacencies"][0]["neighbours"][0]["port"], 9u);
  change("delete all source ospf\ndelete 10.9.0.0/16\n");
  EXPECT_EQ(best()["adjacencies"][0]["steps"][0], "10.9.9.9: no route covers it");
  EXPECT_EQ(best()["candidates"].size(), 1u);
  EXPECT_EQ(live.ask({{"command", "show routes"}, {"for", "8.8.8.8"}, {"from", 2}})["result"]["routes"][0]["prefix"],
            "8.0.0.0/8");
}

TEST_F(LiveTablesTest, CompiledImagesGiveTheirRulesButNotTheirRoutes) {
  (void)graph();
  const RuleSet set = *parse_native_rules(
      "deny tcp from 10.0.0.0/8 port 1024-2048 to 192.0.2.7 port 80 flags SYN dscp 46\npermit udp from 2001:db8::/32 "
      "to any "
      "frag\nmark(7) icmp from any to any icmp-type 8 log\npermit ip from any to 10.0.0.0/7 loose-ports\n",
      "rules");
  ASSERT_TRUE(build_acl(set, "tuple_merge")->write(dir_ / "acl.img").ok());
  Rib rib;
  rib.add4(0x08000000, 8, rib.intern("a"));
  rib.settle();
  ASSERT_TRUE(build_routes(rib, "dir24", "poptrie")->write(dir_ / "rib.img").ok());
  Live live(
      fmt::format("AclTable(edge, FILE {}); RouteTable(fib, FILE {});\nInfiniteSource(LIMIT 0) -> IPInput -> "
                  "ACL(edge) -> IPRoute(fib) -> ToMemory;\n",
                  dir_ / "acl.img", dir_ / "rib.img"));
  EXPECT_EQ(live.list(), to_native(set));
  auto change = live.tables->change_acl("edge", "delete 2\n", "c", false);
  ASSERT_TRUE(change.ok()) << error_of(change);
  EXPECT_EQ(change->algorithm, "tuple_merge") << "the algorithm stays";
  EXPECT_EQ(change->entries_after, 3u);
  EXPECT_NE(error_of(live.tables->change_routes("fib", "delete 8.0.0.0/8", "c", false)).find("compiled image"),
            std::string::npos);
  ASSERT_TRUE(replace_routes(*live.tables, dir_ / "rib").ok());
  EXPECT_TRUE(live.tables->change_routes("fib", "delete 8.0.0.0/8", "c", false).ok());
}

TEST_F(LiveTablesTest, RequestsThatMakeNoSense) {
  Live live(graph());
  for (const char* line : {"",
                           "{",
                           "[]",
                           "7",
                           "null",
                           "{}",
                           R"({"v":1})",
                           R"({"v":2,"command":"show runtime"})",
                           R"({"v":"1","command":"show runtime"})",
                           R"({"v":1,"command":7})",
                           R"({"v":1,"command":"show runtme"})",
                           R"({"v":1,"command":"show runtime","x":1})",
                           R"({"v":1,"command":"show rules","from":0})",
                           R"({"v":1,"command":"show rules","from":-1})",
                           R"({"v":1,"command":"show rules","count":1e9})",
                           R"({"v":1,"command":"show rules","hits":1})",
                           R"({"v":1,"command":"show rules","order":"x"})",
                           R"({"v":1,"command":"show rules","table":"no"})",
                           R"({"v":1,"command":"show routes","for":"nowhere"})",
                           R"({"v":1,"command":"acl change","table":"edge"})",
                           R"({"v":1,"command":"routes replace","table":"fib","files":[]})",
                           R"({"v":1,"command":"routes replace","table":"fib","files":[7]})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":"/none","format":"zip"})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":"/none"})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":"/dev/zero"})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":7})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{}})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{"name":"x"}})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{"text":"x"}})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{"name":"x","text":7}})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{"name":"x","base64":"x"}})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{"name":"x","path":"/dev/zero"}})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{"name":"x","text":"","path":""}})",
                           R"({"v":1,"command":"acl replace","table":"edge","file":{"name":"x","text":"","x":""}})"}) {
    SCOPED_TRACE(line);
    const std::string said = live.control->answer(line);
    EXPECT_EQ(said.find('\n'), std::string::npos);
    const Json answer = Json::parse(said, nullptr, false);
    ASSERT_TRUE(answer.is_object());
    EXPECT_EQ(answer["ok"], false);
    EXPECT_FALSE(answer["error"]["message"].get<std::string>().empty());
  }
  // Bytes that are no UTF-8 come back as something that is.
  const Json answer = Json::parse(live.control->answer("{\"v\":1,\"command\":\"show routes\",\"for\":\"\\u0000x\"}"));
  EXPECT_EQ(answer["ok"], false);
  EXPECT_EQ(live.ask({{"command", "show runtme"}})["error"]["hint"], "did you mean 'show runtime'?");
  EXPECT_EQ(live.runtime->publisher().generation(), 1u);
}

// Two elements look into one list, one behind the other. In the versions with an odd number only even ports are
// permitted, and the other way round: a packet that met two versions is permitted by the first and denied by the
// second.
struct LiveWay {
  unsigned workers;
  const char *device, *algorithm;
};
class LiveChanges : public ::testing::TestWithParam<LiveWay> {};

TEST_P(LiveChanges, EveryPacketMeetsOneVersion) {
  const TempDir dir;
  {
    auto writer = CaptureWriter::create(dir / "in.pcap");
    ASSERT_TRUE(writer.ok());
    for (uint16_t i = 0; i < 512; ++i) {
      const auto frame = udp4("10.0.0.1", "192.0.2.7").ports(i, static_cast<uint16_t>(52 + i % 2)).payload(10).build();
      const auto bytes = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, i}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  testing::write_file(dir / "edge.acl",
                      "permit udp from any to any port 52\ndeny udp from any to any port 53\n"
                      "permit tcp from 10.0.0.0/8 to any\n");
  const uint64_t packets = kWatched ? 20'000 : 300'000;
  RunOptions options;
  options.workers = GetParam().workers;
  if (std::string(GetParam().device) == "emu") {
    options.device.devices = testing::devices_of("emu", 1);
    // The first list is looked up by keys, and the second on the host: both sides change together.
    options.device.records = RecordChoice::kKey;
    options.device.watchdog_ns = 60'000'000'000;
  }
  std::atomic<bool> over{false};
  std::atomic<uint64_t> done{0};
  options.max_packets = ~uint64_t{0};
  options.stop = &over;
  options.stop_is_end = true;
  options.progress = [&](uint64_t n) { done = n; };
  Live live(
      fmt::format(
          "AclTable(edge, FILE {}, ALGORITHM {});\nFromMemory({}, LIMIT 100000000) -> IPInput -> first :: ACL(edge) -> "
          "second :: ACL(edge) -> ToMemory;\n",
          dir / "edge.acl", GetParam().algorithm, dir / "in.pcap"),
      options);
  auto socket = ControlSocket::create(dir / "s");
  ASSERT_TRUE(socket.ok()) << to_string(socket.error());
  ASSERT_TRUE((*socket)->serve([&](std::string_view line) { return live.control->answer(line); }, &refusal).ok());
  uint64_t changes = 0, failures = 0, looks = 0;
  std::jthread client([&] {
    const auto say = [&](Json request) {
      request["v"] = 1;
      auto answer = ask(dir / "s", request.dump(), 60'000'000'000);
      EXPECT_TRUE(answer.ok());
      return answer.ok() ? Json::parse(*answer) : Json();
    };
    for (uint64_t n = 0; !over && (done < packets || changes < 12 || testing::generation_met(*live.runtime) <= 6);
         ++n) {
      const bool odd = n % 2 == 0;
      const auto change = say({{"command", "acl change"},
                               {"table", "edge"},
                               {"changes", fmt::format("replace 1 {} udp from any to any port 52\n"
                                                       "replace 2 {} udp from any to any port 53\n"
                                                       "add at 3 permit tcp from any to any port {}\n{}",
                                                       odd ? "deny" : "permit", odd ? "permit" : "deny", n % 1000,
                                                       n % 3 == 0 ? "" : "delete 4\n")},
                               {"name", "c"}});
      changes += change["ok"] == true ? 1 : 0;
      if (change["ok"] != true) ADD_FAILURE() << change.dump();
      failures +=
          say({{"command", "acl change"}, {"table", "edge"}, {"changes", "delete 100000"}, {"name", "c"}})["ok"] ==
                  false
              ? 1
              : 0;
      const Json look = say({{"command", "show runtime"}});
      looks += look["ok"] == true ? 1 : 0;
    }
    over = true;
  });
  RunReport report;
  const auto result = live.runtime->run(report);
  over = true;
  client.join();
  ASSERT_TRUE(result.ok()) << to_string(result.error());
  EXPECT_TRUE(report.conserved());
  EXPECT_GE(changes, 12u);
  EXPECT_EQ(failures, looks) << "each round has one of either";
  EXPECT_GT(report.generation, 6u);
  const auto drops_of = [&](const char* name) {
    uint64_t all = 0;
    for (size_t e = 0; e < live.router.elements.size(); ++e) {
      if (live.router.elements[e]->name != name) continue;
      for (uint64_t n : report.totals.elements[e].drops) all += n;
    }
    return all;
  };
  if (!options.device.devices.empty()) {
    EXPECT_GT(report.offload.offloaded, report.packets_in / 2);
  }
  EXPECT_EQ(drops_of("second"), 0u) << "a packet met two versions";
  EXPECT_EQ(drops_of("first") + report.packets_out, report.packets_in);
  EXPECT_GT(drops_of("first"), 0u);
  EXPECT_GT(report.packets_out, 0u);
  // Both elements' packets were counted, whatever became of their rules.
  const auto counts = live.runtime->hits().read("edge");
  uint64_t sum = counts.removed.packets;
  for (const HitCount& c : counts.rules) sum += c.packets;
  EXPECT_EQ(sum, report.packets_in + report.packets_out);
}

// Every packet goes to 192.0.2.7. Its route, of one of three sources, leads to one of two addresses, and in the same
// change the route of that address comes to a resilient group and that of the other to a blackhole: whoever looked into
// the routes of one version and the adjacencies of another would drop packets. A worse source says blackhole all the
// time, and a member of the group comes and goes.
class LiveRouteChanges : public ::testing::TestWithParam<LiveWay> {};

TEST_P(LiveRouteChanges, EveryPacketMeetsRoutesAndNextHopsOfOneVersion) {
  const TempDir dir;
  {
    auto writer = CaptureWriter::create(dir / "in.pcap");
    ASSERT_TRUE(writer.ok());
    for (uint16_t i = 0; i < 512; ++i) {
      const auto frame = udp4("10.0.0.1", "192.0.2.7").ports(i, 53).payload(10).build();
      const auto bytes = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, i}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  testing::write_file(dir / "rib", "192.0.2.0/24 10.1.0.1\n10.1.0.1/32 good\n10.1.0.2/32 blackhole\n10.1.0.3/32 n3\n");
  testing::write_file(dir / "adj",
                      "n1 02:00:00:00:00:01 02:00:00:00:01:00 1\nn2 02:00:00:00:00:02 02:00:00:00:01:00 2\n"
                      "n3 02:00:00:00:00:03 02:00:00:00:01:00 3\ngood group n1 n2 10.1.0.3 resilient 64\n");
  RunOptions options;
  options.workers = GetParam().workers;
  if (std::string(GetParam().device) == "emu") {
    options.device.devices = testing::devices_of("emu", 1);
    options.device.records = RecordChoice::kFrame;
    options.device.watchdog_ns = 60'000'000'000;
  }
  std::atomic<bool> over{false};
  std::atomic<uint64_t> done{0};
  options.max_packets = ~uint64_t{0};
  options.stop = &over;
  options.stop_is_end = true;
  options.progress = [&](uint64_t n) { done = n; };
  Live live(fmt::format("RouteTable(fib, FILE {}, ALGORITHM {});\nAdjacencyTable(adj, FILE {}, ROUTES fib);\n"
                        "FromMemory({}, LIMIT 100000000) -> IPInput -> IPRoute(fib) -> AdjacencyRewrite(adj) -> "
                        "ToMemory;\n",
                        dir / "rib", GetParam().algorithm, dir / "adj", dir / "in.pcap"),
            options);
  const uint64_t packets = kWatched ? 20'000 : 200'000;
  constexpr uint64_t kChanges = kWatched ? 10 : 24;
  uint64_t changes = 0;
  std::jthread client([&] {
    const auto apply = [&](const std::string& text) {
      const auto change = live.tables->change_routes("fib", text, "c", false);
      changes += change.ok() ? 1 : 0;
      if (!change.ok()) ADD_FAILURE() << text << error_of(change);
    };
    apply("add 192.0.2.0/24 blackhole source worse preference 250\n");
    const char* const sources[] = {"s1 preference 3", "s2 preference 2", "s3 preference 1 metric 9"};
    for (uint64_t n = 0; !over && (done < packets || changes < kChanges || testing::generation_met(*live.runtime) <= 6);
         ++n) {
      const bool odd = n % 2 == 0;
      std::string text = fmt::format("add 10.1.0.1/32 {}\nadd 10.1.0.2/32 {}\n", odd ? "blackhole" : "good",
                                     odd ? "good" : "blackhole");
      // The source that spoke last goes, and another one speaks.
      if (n != 0) text += "delete 192.0.2.0/24\n";
      text += fmt::format("add 192.0.2.0/24 {} source {}\n", odd ? "10.1.0.2" : "10.1.0.1", sources[n % 3]);
      if (n == 0) text += "delete 192.0.2.0/24 source static\n";
      text += n % 4 < 2 ? "add 10.1.0.3/32 n3\n" : "add 10.1.0.3/32 nobody\n";
      text += fmt::format("add 10.{}.0.0/16 10.1.0.1+10.1.0.2 source s{}\n", n % 50, n % 7);
      apply(text);
    }
    over = true;
  });
  RunReport report;
  const auto result = live.runtime->run(report);
  over = true;
  client.join();
  ASSERT_TRUE(result.ok()) << to_string(result.error());
  EXPECT_TRUE(report.conserved());
  EXPECT_GE(changes, kChanges);
  EXPECT_GT(report.generation, 6u);
  if (!options.device.devices.empty()) {
    EXPECT_GT(report.offload.offloaded, report.packets_in / 2);
  }
  for (size_t r = 1; r < kDropReasons; ++r) EXPECT_EQ(report.drops[r], 0u) << to_string(static_cast<DropReason>(r));
  EXPECT_EQ(report.packets_out, report.packets_in);
}

INSTANTIATE_TEST_SUITE_P(Ways, LiveRouteChanges,
                         ::testing::Values(LiveWay{1, "cpu", "dir24"}, LiveWay{3, "cpu", "sail"},
                                           LiveWay{2, "emu", "dir24"}, LiveWay{2, "emu", "poptrie"}));

INSTANTIATE_TEST_SUITE_P(Ways, LiveChanges,
                         ::testing::Values(LiveWay{1, "cpu", "tuple_space"}, LiveWay{3, "cpu", "tuple_merge"},
                                           LiveWay{2, "emu", "tuple_space"}, LiveWay{2, "emu", "tuple_merge"},
                                           LiveWay{1, "emu", "linear"}, LiveWay{1, "emu", "bitvec"}));

}  // namespace
}  // namespace sluice
