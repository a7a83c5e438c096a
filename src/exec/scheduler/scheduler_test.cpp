// Graphs with queues, rates and scripts, in simulated time: what comes out is known to the packet.
#include "exec/scheduler/scheduler.h"
#include "exec/engine/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "elements/flow_element.h"
#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/walk/plan.h"

namespace sluice {
namespace {

// Hands packets on as soon as it is there.
class StartsWith final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override { packets_ = arguments.get_uint("PACKETS"); }
  Result<void> start(FlowContext& context) override {
    for (uint64_t i = 0; i < packets_; ++i) context.push(0, context.bring(std::vector<uint8_t>(60)));
    return {};
  }

 private:
  uint64_t packets_ = 0;
};

const Registry& elements() {
  static const Registry registry = [] {
    Registry r;
    register_elements(r);
    ElementClass c;
    c.name = "StartsWith";
    c.group = "Tests";
    c.summary = "hands packets on when it starts";
    c.arguments = {
        {.name = "PACKETS", .kind = ArgumentKind::kUint, .positional = true, .mandatory = true, .help = "n"}};
    c.inputs = {0, 0};
    c.processing = "h/h";
    c.make = make_flow<StartsWith>();
    r.add(std::move(c));
    return r;
  }();
  return registry;
}

// A configuration in simulated time, and what it said.
struct PlayedGraph {
  std::unique_ptr<ClickGraph> graph;
  std::unique_ptr<Router> router;
  Plan plan;
  std::unique_ptr<Engine> engine;
  RunReport report;
  std::string out, err, error;

  uint64_t drops(DropReason reason) const { return report.drops[static_cast<size_t>(reason)]; }
  std::string read(const char* handler) {
    auto value = engine->read(handler);
    return value.ok() ? *value : "error: " + value.error().message;
  }
};

// `next`: what the handler `hotconfig` calls by this word.
std::unique_ptr<PlayedGraph> play(const std::string& text, bool run = true, const std::string& next = {}) {
  auto played = std::make_unique<PlayedGraph>();
  PlayedGraph& p = *played;
  auto graph = parse_click(text, "g");
  if (!graph.ok()) {
    p.error = to_string(graph.error());
    return played;
  }
  p.graph = std::make_unique<ClickGraph>(std::move(*graph));
  auto router = build_router(*p.graph, elements(), text);
  if (!router.ok()) {
    p.error = to_string(router.error());
    return played;
  }
  p.router = std::make_unique<Router>(std::move(*router));
  RunOptions options;
  options.simulated = true;
  options.print_out = [&p](std::string_view t) { p.out += t; };
  options.print_error = [&p](std::string_view t) { p.err += t; };
  options.print = [&p](std::string_view t) { (p.err += t) += '\n'; };
  LoadOptions by_packets;
  by_packets.by_packets = true;
  options.load = [next, by_packets](std::string_view given) {
    return load_generation(given == "next" ? std::string_view(next) : given, "next", elements(), by_packets);
  };
  auto tables = load_tables(*p.router);
  if (!tables.ok()) {
    p.error = to_string(tables.error());
    return played;
  }
  p.plan = plan_by_packets(*p.router);
  auto engine = Engine::create(*p.router, p.plan, *tables, options);
  if (!engine.ok()) {
    p.error = to_string(engine.error());
    return played;
  }
  p.engine = std::move(*engine);
  if (!run) return played;
  if (auto done = p.engine->run(p.report); !done.ok()) p.error = to_string(done.error());
  EXPECT_TRUE(p.report.conserved()) << text;
  return played;
}

TEST(Scheduler, AQueueHoldsItsSourceBackAndASimpleQueueDoesNot) {
  auto held = play("i :: InfiniteSource(LIMIT 50) -> q :: Queue(10) -> Idle;");
  EXPECT_EQ(held->error, "");
  EXPECT_EQ(held->report.packets_in, 10u);
  EXPECT_EQ(held->report.queued, 10u);
  EXPECT_EQ(held->report.dropped, 0u);
  auto lost = play("InfiniteSource(LIMIT 50) -> q :: SimpleQueue(10) -> Idle;");
  EXPECT_EQ(lost->report.packets_in, 50u);
  EXPECT_EQ(lost->report.queued, 10u);
  EXPECT_EQ(lost->drops(DropReason::kQueueFull), 40u);
  EXPECT_EQ(lost->read("q.drops"), "40");
  EXPECT_EQ(lost->read("q.highwater_length"), "10");
}

TEST(Scheduler, SendsPacketsOfAFullQueueByTheSecondOutput) {
  auto p = play(
      "InfiniteSource(LIMIT 7) -> q :: SimpleQueue(3) -> Unqueue -> a :: Counter -> Discard;\n"
      "q [1] -> b :: Counter -> Discard;");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(std::stoi(p->read("a.count")) + std::stoi(p->read("b.count")), 7);
  EXPECT_EQ(p->report.queued, 0u);
}

TEST(Scheduler, AQueueKeepsTheOrder) {
  auto p = play(
      "FromIPSummaryDump(DATA \"!data ip_id\n1\n2\n3\n4\") -> Queue -> Unqueue -> ToIPSummaryDump(-, FIELDS ip_id);");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->out, "!IPSummaryDump 1.3\n!data ip_id\n1\n2\n3\n4\n");
  EXPECT_EQ(p->report.packets_out, 4u);
}

TEST(Scheduler, RatesAreExactToThePacket) {
  // Full at the start: BURST at once, then one every 1/RATE seconds, before the time is over.
  const std::tuple<const char*, double, int> cases[] = {
      {"RatedUnqueue(10)", 2.0, 20},
      {"RatedUnqueue(10, BURST_SIZE 5)", 2.0, 24},
      {"RatedUnqueue(3)", 2.0, 6},
      {"RatedUnqueue(7, BURST_DURATION 1s)", 3.0, 27},
      // 100-byte packets; the bucket pays for a packet when it holds anything.
      {"BandwidthRatedUnqueue(1000Bps)", 2.0, 21},
      {"BandwidthRatedUnqueue(1000Bps, BURST_BYTES 500)", 2.0, 25},
      {"BandwidthRatedUnqueue(1240Bps, LINK_RATE true)", 2.0, 21},
      {"Shaper(10) -> Unqueue", 2.0, 20},
      {"BandwidthShaper(1000Bps) -> Unqueue", 2.0, 20},
  };
  for (const auto& [element, seconds, want] : cases) {
    auto p =
        play(fmt::format("InfiniteSource(LENGTH 100) -> Queue(10) -> {} -> c :: Counter -> Discard;\n"
                         "DriverManager(wait {}s);",
                         element, seconds));
    EXPECT_EQ(p->error, "") << element;
    EXPECT_EQ(p->read("c.count"), std::to_string(want)) << element;
  }
}

TEST(Scheduler, ARatedSourceGivesItsRateForAnyRate) {
  for (const uint64_t rate : {1u, 3u, 7u, 999u, 10007u}) {
    auto p = play(fmt::format("RatedSource(RATE {}) -> c :: Counter -> Discard; DriverManager(wait 3s);", rate));
    EXPECT_EQ(p->error, "");
    // The first at once, and none in the last instant: the script's timer is the older one.
    EXPECT_EQ(p->read("c.count"), std::to_string(3 * rate)) << rate;
  }
}

RC_GTEST_PROP(TokenBuckets, GiveNeitherMoreNorLessThanTheirRate, ()) {
  const auto rate = *rc::gen::inRange<uint64_t>(1, 1'000'000'000);
  const auto capacity = *rc::gen::inRange<uint64_t>(1, 1000);
  TokenBucket bucket;
  bucket.set(rate, static_cast<__int128>(capacity) * kSecondNs, 0);
  uint64_t taken = 0;
  uint64_t now = 0;
  for (const uint64_t step : *rc::gen::container<std::vector<uint64_t>>(20, rc::gen::inRange<uint64_t>(0, 5000))) {
    now += step;
    bucket.refill(now);
    while (bucket.has(kSecondNs)) {
      bucket.take(1);
      ++taken;
    }
    // The next token is there at the time it says, and not before.
    const uint64_t next = bucket.time_of(kSecondNs);
    RC_ASSERT(next > now);
    TokenBucket early = bucket, late = bucket;
    early.refill(next - 1);
    late.refill(next);
    RC_ASSERT(!early.has(kSecondNs));
    RC_ASSERT(late.has(kSecondNs));
  }
  RC_ASSERT(taken <= capacity + static_cast<unsigned __int128>(rate) * now / kSecondNs);
}

RC_GTEST_PROP(Pace, DoesNotDrift, ()) {
  const auto rate = *rc::gen::inRange<uint64_t>(1, 1'000'000'000);
  const auto units = *rc::gen::container<std::vector<uint64_t>>(50, rc::gen::inRange<uint64_t>(1, 9000));
  Pace pace;
  pace.set(rate);
  pace.restart(0);
  unsigned __int128 sum = 0;
  for (const uint64_t n : units) {
    pace.went(n, pace.next_ns(), kSecondNs);
    sum += n;
    RC_ASSERT(pace.next_ns() == static_cast<uint64_t>(sum * kSecondNs / rate));
  }
}

TEST(Scheduler, ShapedPacketsAreEvenlyApart) {
  auto p = play("InfiniteSource(LIMIT 4) -> Shaper(4) -> Unqueue -> ToIPSummaryDump(-, FIELDS timestamp);");
  EXPECT_EQ(p->error, "");
  // Made when they are asked for.
  EXPECT_EQ(p->out, "!IPSummaryDump 1.3\n!data timestamp\n0.000000\n0.250000\n0.500000\n0.750000\n");
}

TEST(Scheduler, AShapersSecondOutputHasWhatIsNotDueYet) {
  auto p = play(
      "InfiniteSource(LIMIT 100) -> s :: Shaper(500) => ([0] -> a :: Counter -> [0]; [1] -> b :: Counter -> "
      "[1]) => RoundRobinSched -> TimedSink(1ms); DriverManager(wait 150ms);");
  ASSERT_EQ(p->error, "");
  EXPECT_EQ(std::stoi(p->read("a.count")) + std::stoi(p->read("b.count")), 100);
  EXPECT_NEAR(std::stoi(p->read("a.count")), 50, 1);
}

TEST(Scheduler, SchedulersChooseAsTheySay) {
  const std::string queues =
      "FromIPSummaryDump(DATA \"!data link\n1\n1\n1\n1\") -> a :: Queue; FromIPSummaryDump(DATA \"!data "
      "link\n2\n2\n2\") "
      "-> b :: Queue; a -> s; b -> [1] s; s -> u :: Unqueue(ACTIVE false) -> t :: ToIPSummaryDump(-, FIELDS link);\n"
      "DriverManager(wait 1s, write u.active true, wait 1s);";
  auto order = [&](const std::string& element) {
    auto p = play("s :: " + element + ";\n" + queues);
    EXPECT_EQ(p->error, "");
    std::string lines = p->out.substr(p->out.find("link\n") + 5);
    lines.erase(std::remove(lines.begin(), lines.end(), '\n'), lines.end());
    return lines;
  };
  EXPECT_EQ(order("RoundRobinSched"), "1212121");
  EXPECT_EQ(order("PrioSched"), "1111222");
  // 40 bytes each: 80 a turn are two packets.
  EXPECT_EQ(order("DRRSched(80)"), "1122112");
}

TEST(Scheduler, DeficitRoundRobinSharesBytes) {
  auto p = play(
      "InfiniteSource(LENGTH 1500) -> a :: Queue(100) -> ca :: Counter -> [0] s :: DRRSched;\n"
      "InfiniteSource(LENGTH 100) -> b :: Queue(100) -> cb :: Counter -> [1] s;\n"
      "s -> BandwidthShaper(100000Bps) -> Unqueue -> Discard; DriverManager(wait 10s);");
  EXPECT_EQ(p->error, "");
  const double share = std::stod(p->read("ca.byte_count")) / std::stod(p->read("cb.byte_count"));
  EXPECT_NEAR(share, 1.0, 0.01);
}

TEST(Scheduler, StagesAndHostElementsWorkInPullPaths) {
  auto p = play(
      "RatedSource(DATA \\<0102030405>, RATE 1, LIMIT 3) -> Queue -> Strip(1) -> Print(x) -> Counter -> Paint(3) "
      "-> Unqueue -> ps :: PaintSwitch; ps[0] -> Discard; ps[1] -> Discard; ps[2] -> Discard;\n"
      "ps[3] -> c :: Counter -> Discard;");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->err, "x:    4 | 02030405\nx:    4 | 02030405\nx:    4 | 02030405\n");
  EXPECT_EQ(p->read("c.count"), "3");
  EXPECT_EQ(p->drops(DropReason::kDiscard), 3u);
}

TEST(Scheduler, ATeesCopiesCountAsMade) {
  auto p = play("RatedSource(LIMIT 2) -> t :: Tee -> q :: Queue -> Unqueue -> Discard; t[1] -> Discard;");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->report.packets_in, 2u);
  EXPECT_EQ(p->report.generated, 2u);
  EXPECT_EQ(p->report.dropped, 4u);
}

TEST(Scheduler, ACycleWithoutAQueueEnds) {
  auto p = play("RatedSource(LIMIT 1) -> c :: Counter -> s :: Switch(0) -> c; s[1] -> Discard;");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->drops(DropReason::kLoop), 1u);
}

TEST(Scheduler, PacketsMayOutliveTheScheduler) {
  auto p = play("InfiniteSource(LIMIT 5) -> Queue -> Idle;");
  EXPECT_EQ(p->report.queued, 5u);
  p->engine.reset();
  p->router.reset();  // the queue's packets go now, to a pool whose owner is gone
}

TEST(Scheduler, ScriptsWaitCountAndBranch) {
  auto p = play(
      "i :: InfiniteSource(ACTIVE false) -> c :: Counter -> Discard;\n"
      "Script(set x 0, label again, print $x, wait 0.5s, set x $(add $x 1), goto again $(lt $x 3), print now "
      "done, stop);");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->out.substr(0, 6), "0\n1\n2\n");
  EXPECT_EQ(p->engine->clock_ns(), 1'500'000'000u);
}

TEST(Scheduler, ADriverScriptDecidesWhenTheRunEnds) {
  auto p = play(
      "s :: RatedSource(RATE 10, LIMIT 5, STOP true) -> c :: Counter -> Discard;\n"
      "DriverManager(wait_stop, print c.count, write s.reset, wait_stop, print c.count);");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->out, "5\n10\n");
}

TEST(Scheduler, HandlersThatAreNotThereSaySo) {
  auto p = play("a :: Idle -> c :: Counter -> Discard;", false);
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->read("c.cuont"), "error: 'c' (Counter) has no handler 'cuont'");
  EXPECT_EQ(p->read("d.count"), "error: there is no element 'd'");
  EXPECT_EQ(p->read("c.reset"), "error: 'c.reset' cannot be read");
  EXPECT_EQ(p->read("count"), "error: there is no handler 'count'");
  EXPECT_EQ(p->engine->read("c.cuont").error().hint, "did you mean 'count'?");
  EXPECT_FALSE(p->engine->write("c.count", "1").ok());
  EXPECT_EQ(p->read("c.class"), "Counter");
  EXPECT_EQ(p->read("c.ports"), "1 input\npush <- a[0]\n1 output\npush -> Discard@3[0]\n");
}

TEST(Scheduler, AScriptAnswersAndReportsWhatItCannotDo) {
  auto p = play(
      "s :: Script(TYPE PASSIVE, return $(mul $1 $2)); Script(print $(s.run 6 7), read s.run 2 3, write "
      "nobody.x 1, print $?, print \"$(add 1 2)\", print '$(add 1 2)', set y a, print ${y}b ${z-none});");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->out, "42\n-1\n3\n$(add 1 2)\nab none\n");
  EXPECT_EQ(p->err, "s.run:\n6\nWhile writing 'nobody.x' (Script@2 :: Script):\n  there is no element 'nobody'\n");
}

TEST(Scheduler, FunctionsOfScripts) {
  const std::pair<const char*, const char*> cases[] = {
      {"add 1 2 3", "6"},
      {"sub 10 2 2", "6"},
      {"mul 1.5 2", "3"},
      {"div 7 2", "3.5"},
      {"idiv 7 2", "3"},
      {"mod 7 3", "1"},
      {"mod 7 0", "error"},
      {"min 3 1 2", "1"},
      {"max -1 6 3", "6"},
      {"avg 1 2", "1.5"},
      {"neg 5", "-5"},
      {"abs -2.5", "2.5"},
      {"eq 10 0xa", "true"},
      {"lt abc abd", "true"},
      {"not true", "false"},
      {"and 1 0", "false"},
      {"nor 0 no", "true"},
      {"if true a b", "a"},
      {"in a b a", "true"},
      {"length abc", "3"},
      {"floor -1.5", "-2"},
      {"ceil 1.2", "2"},
      {"htons 1", "256"},
      {"htonl 1", "16777216"},
      {"add 9223372036854775807 1", "9.22337203685478e+18"},
      {"add x 1", "error"},
      {"if maybe a b", "error"},
  };
  auto p = play("s :: Script(TYPE PASSIVE, end);", false);
  ASSERT_EQ(p->error, "");
  for (const auto& [call, want] : cases) {
    const std::string text = call;
    const size_t blank = text.find(' ');
    auto value = p->engine->read("s." + text.substr(0, blank), text.substr(blank + 1));
    EXPECT_EQ(value.ok() ? *value : "error", want) << call;
  }
}

TEST(Scheduler, WrongConfigurationsAreErrorsWhereTheyStand) {
  const std::pair<const char*, const char*> cases[] = {
      {"Script(prnt x);", "'prnt' is not an instruction"},
      {"Script(goto nowhere);", "there is no label 'nowhere'"},
      {"Script(wait soon);", "'soon' is not a time"},
      {"Script(TYPE PASSIVE, wait 1s);",
       "'wait' cannot be used in a script of this type: its caller waits for the end"},
      {"Script(TYPE LOUD);", "'LOUD' is not a type of script"},
      {"Script(TYPE SIGNAL FOO);", "'FOO' is not a signal"},
      {"Script(label a, label a);", "label 'a' is there twice"},
      {"Idle -> Queue -> RatedUnqueue(5, BURST_SIZE 2, BURST_DURATION 1s) -> Discard;",
       "both BURST_DURATION and BURST_SIZE are given"},
      {"Idle -> Queue -> Unqueue -> Counter(COUNT_CALL x) -> Discard;", "'x' is not a count and a handler"},
      {"Idle -> Counter(COUNT_CALL 5 nobody.reset) -> Discard;",
       "there is no handler 'nobody.reset' that can be written"},
      {"FromIPSummaryDump(a, FIELDS ip_scr) -> Discard;", "there is no field 'ip_scr'"},
      {"FromIPSummaryDump() -> Discard;", "give either a file or DATA"},
      {"FromIPSummaryDump(/no/such/file) -> Discard;", "/no/such/file: cannot open"},
  };
  for (const auto& [text, want] : cases) {
    auto p = play(text, false);
    EXPECT_NE(p->error.find(want), std::string::npos) << text << "\n" << p->error;
    EXPECT_NE(p->error.find("^"), std::string::npos) << text;
  }
}

TEST(Scheduler, AnotherGraphGoesOnWithWhatHasItsName) {
  auto p = play(
      "RatedSource(RATE 100) -> before :: Counter -> q :: Queue(500) -> r :: RatedUnqueue(10) -> after :: Counter -> "
      "Discard; DriverManager(wait 1s, write hotconfig next, wait 5s);",
      true,
      "RatedSource(RATE 100) -> before :: Counter -> q :: Queue(40) -> r :: RatedUnqueue(10) -> after :: Counter -> "
      "null :: Null -> Discard; DriverManager(wait 1s, stop);");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->err, "");
  EXPECT_EQ(p->engine->swaps(), 1u);
  // What they counted before and after.
  EXPECT_EQ(p->read("before.count"), "200");
  const auto after = std::stoull(p->read("after.count"));
  EXPECT_GE(after, 19u);
  EXPECT_LE(after, 21u);
  // The queue took what fitted of some ninety packets; the rest found no room.
  EXPECT_EQ(p->read("q.capacity"), "40");
  EXPECT_EQ(p->read("q.length"), "40");
  EXPECT_EQ(p->drops(DropReason::kGraphChanged), 0u);
  EXPECT_EQ(p->drops(DropReason::kQueueFull), 200 - 40 - after);
  EXPECT_EQ(p->report.packets_in, 200u);
  EXPECT_EQ(p->engine->router().find("null")->class_name, "Null");
}

TEST(Scheduler, DropsPacketsOfRemovedElementsAsChanged) {
  auto p = play(
      "RatedSource(RATE 100) -> q :: Queue(500) -> Idle; DriverManager(wait 995ms, write hotconfig next, wait 5s);",
      true, "InfiniteSource(LIMIT 3) -> c :: Counter -> Discard;");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->err, "");
  EXPECT_EQ(p->drops(DropReason::kGraphChanged), 100u);
  EXPECT_EQ(p->report.packets_in, 103u);
  EXPECT_EQ(p->report.queued, 0u);
  EXPECT_EQ(p->read("c.count"), "3");
}

TEST(Scheduler, AGraphWithErrorsChangesNothing) {
  for (const auto& [next, want] : {std::pair("Idle -> Nobody;", "element class 'Nobody'"),
                                   std::pair("Idle -> Queue -> Discard(1);", "this element takes no positional"),
                                   std::pair("FromDump(/no/such/file) -> Queue -> Discard;", "/no/such/file"),
                                   std::pair("FromIPSummaryDump(/no/such/dump) -> Discard;", "/no/such/dump")}) {
    auto p = play(
        "RatedSource(RATE 100) -> c :: Counter -> Discard;\n"
        "s :: DriverManager(wait 1s, write hotconfig next, set failed $?, wait 1s, stop);",
        true, next);
    EXPECT_EQ(p->error, "");
    EXPECT_NE(p->err.find(want), std::string::npos) << p->err;
    EXPECT_EQ(p->engine->swaps(), 0u);
    auto failed = p->engine->read("s.get", "failed");
    EXPECT_EQ(failed.ok() ? *failed : "", "-1");
    EXPECT_EQ(p->read("c.count"), "200");
  }
}

TEST(Scheduler, AnElementThatIsTheSameGoesOnAsItIs) {
  // The dump is at its third line, and the driver script within its second wait.
  const std::string kept =
      "FromIPSummaryDump(DATA \"!data ip_id\n1\n2\n3\n4\") -> q :: Queue(1) -> r :: RatedUnqueue(1) -> ";
  const std::string rest =
      "ToIPSummaryDump(-, FIELDS ip_id);\n"
      "d :: DriverManager(wait 1500ms, write hotconfig next, wait 2s, stop);";
  auto p = play(kept + rest, true, kept + "c :: Counter -> " + rest);
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->err, "");
  EXPECT_EQ(p->engine->swaps(), 1u);
  EXPECT_EQ(p->engine->clock_ns(), 3500 * kSecondNs / 1000);
  EXPECT_EQ(p->read("c.count"), "2");
  EXPECT_EQ(p->report.packets_in, 4u);
  EXPECT_EQ(p->report.packets_out, 4u);
  EXPECT_EQ(p->report.dropped, 0u);
}

// While the graph before has its sinks still.
TEST(Scheduler, KeepsPacketsOfStartingElementsForTheirSinks) {
  for (const unsigned packets : {1u, 31u, 32u, 33u, 100u}) {
    auto p = play(
        "FromIPSummaryDump(DATA \"!data ip_id\n1\n2\") -> a :: ToDump(/dev/null);\n"
        "DriverManager(wait 1s, write hotconfig next, wait 1s);",
        true,
        fmt::format("StartsWith({}) -> c :: Counter -> t :: Tee(2);\n"
                    "t[0] -> Discard; t[1] -> z :: Discard;\n"
                    "i :: InfiniteSource(LIMIT 1) -> a :: ToDump(/dev/null); DriverManager(wait 1s, stop);",
                    packets));
    EXPECT_EQ(p->error, "");
    EXPECT_EQ(p->err, "");
    EXPECT_EQ(p->engine->swaps(), 1u);
    EXPECT_EQ(p->read("c.count"), std::to_string(packets));
    EXPECT_EQ(p->drops(DropReason::kDiscard), 2 * packets);
    EXPECT_EQ(p->report.packets_out, 3u) << packets;
  }
}

TEST(Scheduler, OtherThreadsAreToldWhenTheRunIsOver) {
  auto p = play("InfiniteSource(LIMIT 3) -> Discard;");
  bool called = false;
  EXPECT_FALSE(p->engine->ask([&] { called = true; }).ok());
  EXPECT_FALSE(called);
}

TEST(Scheduler, RoutesOfALookupChangeByHandlers) {
  auto p = play(
      "i :: Idle -> r :: RadixIPLookup(10.0.0.0/8 0) -> Discard; r[1] -> Discard;\n"
      "DriverManager(writeq r.ctrl \"add 10.1.0.0/16 192.0.2.1 1\\nset 10/8 1\\nadd 0/0 0\", print r.table,\n"
      "  print r.lookup 10.1.2.3, print r.lookup 10.9.0.0, print r.lookup 8.8.8.8,\n"
      "  writeq r.ctrl \"remove 10/8\\nadd 0/0 1\", print $?, print r.lookup 10.9.0.0,\n"
      "  write r.add 1.0.0.0/8 7, write r.remove 9.0.0.0/8, write r.add 1.0.0.0, writeq r.ctrl \"drop 1\",\n"
      "  write r.flush, print r.lookup 10.1.2.3);");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->out,
            "10.0.0.0/8\t-\t1\n10.1.0.0/16\t192.0.2.1\t1\n0.0.0.0/0\t-\t0\n"
            "1 192.0.2.1\n1\n0\n-1\n1\n-1\n");
  const char* const head = "While writing 'r.{}' (DriverManager@5 :: DriverManager):\n  {}\n";
  EXPECT_EQ(p->err, fmt::format(fmt::runtime(head), "ctrl", "line 2: conflict with existing route '0.0.0.0/0 - 0'") +
                        fmt::format(fmt::runtime(head), "add", "output 7 is not connected") +
                        fmt::format(fmt::runtime(head), "remove", "there is no route '9.0.0.0/8'") +
                        fmt::format(fmt::runtime(head), "add", "a route has 2 or 3 words, not 1") +
                        fmt::format(fmt::runtime(head), "ctrl", "'drop' is not a change of routes"));
}

TEST(Scheduler, PacketsMeetTheRoutesThatHandlersMade) {
  auto p = play(
      "FromIPSummaryDump(DATA \"!data ip_dst\n10.1.0.1\n10.1.0.2\", ACTIVE false) -> s :: Null -> r :: "
      "LinearIPLookup(10.1.0.0/16 0) -> a :: Counter -> Discard; r[1] -> b :: Counter -> Discard;\n"
      "DriverManager(write r.add 10.1.0.2/32 1, write FromIPSummaryDump@1.active true, wait 1s);");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->err, "");
  EXPECT_EQ(p->read("a.count") + p->read("b.count"), "11");
}

TEST(Scheduler, ACodepointCanBeWrittenWhilePacketsPass) {
  const std::string source = "FromIPSummaryDump(DATA \"!data ip_dst\n10.1.0.1\n\", ACTIVE false) -> d;\n";
  auto p = play(
      "d :: SetIPDSCP(10) -> c :: IPClassifier(ip dscp 10, ip dscp 46, -);\n"
      "c[0] -> a :: Counter -> Discard; c[1] -> b :: Counter -> Discard; c[2] -> Discard;\n"
      "one :: " +
      source + "two :: " + source +
      "DriverManager(write one.active true, wait 1s, write d.dscp 46, write two.active true, wait 1s, write d.dscp "
      "64);");
  EXPECT_EQ(p->error, "");
  EXPECT_NE(p->err.find("'64'"), std::string::npos) << p->err;
  EXPECT_EQ(p->read("a.count") + p->read("b.count"), "11");
  EXPECT_EQ(p->read("d.dscp"), "46");
}

TEST(Scheduler, BatchesWaitForEnoughPacketsOrForTime) {
  auto p = play(
      "RatedSource(RATE 100, LIMIT 25) -> m :: MinBatch(10, TIMER 500000) -> c :: Counter -> Discard;\n"
      "DriverManager(wait 150ms, print c.count, print m.batches, wait 100ms, print c.count, print m.timeouts, wait "
      "1s,\n"
      "  print c.count, print m.timeouts);");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->out, "10\n1\n20\n0\n25\n1\n");
}

TEST(Scheduler, APipelinerHoldsItsSourceBackOrLoses) {
  // What follows has its turn after the source: one packet at a time is in between.
  auto held = play("InfiniteSource(LIMIT 50) -> p :: Pipeliner(CAPACITY 1) -> c :: Counter -> Discard;");
  EXPECT_EQ(held->error, "");
  EXPECT_EQ(held->read("c.count"), "50");
  auto lost = play(
      "RatedSource(RATE 10, LIMIT 2) -> t :: Tee(3) -> p :: Pipeliner(CAPACITY 2, BLOCKING false) -> c :: Counter -> "
      "Discard; t[1] -> p; t[2] -> p;");
  EXPECT_EQ(lost->read("c.count"), "4");
  EXPECT_EQ(lost->drops(DropReason::kQueueFull), 2u);
  EXPECT_EQ(lost->read("p.dropped"), "2");
}

TEST(Scheduler, NamesStandForAddresses) {
  auto p = play(
      "inside :: { -> r :: LinearIPLookup(lan 0, lan:ipnet lan:bcast 0, lan:bcast gate 0) -> };\n"
      "Idle -> inside -> Discard;\n"
      "FromIPSummaryDump(DATA \"!data ip_src\n10.1.2.3\n10.1.2.255\n10.9.9.9\n192.0.2.7\")\n"
      "  -> c :: IPClassifier(src host lan, src net lan:ipnet, src other:ip, -);\n"
      "c[0] -> a :: Counter -> d :: Discard; c[1] -> b :: Counter -> d; c[2] -> e :: Counter -> d; c[3] -> f :: "
      "Counter -> d;\n"
      "AddressInfo(lan 10.1.2.3/24 2:0:0:0:0:1, other 10.9.9.9 2001:db8::1/64, gate 192.0.2.1);\n"
      "FromIPSummaryDump(DATA \"!data ip_id\n1\") -> EtherEncap(0x0800, lan, 02:00:00:00:00:02) -> "
      "ether :: Classifier(6/020000000001) -> g :: Counter -> d;");
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->read("inside/r.table"), "10.1.2.3/32\t-\t0\n10.1.2.0/24\t10.1.2.255\t0\n10.1.2.255/32\t192.0.2.1\t0\n");
  EXPECT_EQ(p->read("a.count") + p->read("b.count") + p->read("e.count") + p->read("f.count"), "1111");
  EXPECT_EQ(p->read("g.count"), "1");
  auto scoped = play(
      "AddressInfo(x 10.0.0.1); in :: { AddressInfo(x 10.0.0.2); -> r :: LinearIPLookup(x 0) -> }; "
      "o :: LinearIPLookup(x 0); Idle -> in -> o -> Discard;",
      false);
  EXPECT_EQ(scoped->error, "");
  EXPECT_EQ(scoped->read("in/r.table"), "10.0.0.2/32\t-\t0\n");
  EXPECT_EQ(scoped->read("o.table"), "10.0.0.1/32\t-\t0\n");
  auto wrong = play("AddressInfo(x 10.0.0.1); Idle -> LinearIPLookup(x:ipnet 0) -> Discard;", false);
  EXPECT_NE(wrong->error.find("'x:ipnet' is not an IPv4 prefix"), std::string::npos) << wrong->error;
}

TEST(Scheduler, AFilterReadsItsRulesFromAFile) {
  const std::string file = ::testing::TempDir() + "sluice_filter_rules.txt";
  std::ofstream(file) << "# what passes\n0 ip[19]&128 == 0\n\ndeny all\n";
  auto p = play(fmt::format(
      "FromIPSummaryDump(DATA \"!data ip_dst\n10.0.0.1\n10.0.0.129\") -> IPFilter(file {}) -> c :: Counter -> Discard;",
      file));
  EXPECT_EQ(p->error, "");
  EXPECT_EQ(p->read("c.count"), "1");
  EXPECT_EQ(p->drops(DropReason::kAclDeny), 1u);
  std::ofstream(file) << "allow all\nallow scr 1\n";
  auto wrong = play(fmt::format("Idle -> IPFilter(file {}) -> Discard;", file), false);
  EXPECT_NE(
      wrong->error.find(fmt::format("{}:2:7: error: 'scr' is not a primitive\n  allow scr 1\n        ^~~\n", file)),
      std::string::npos)
      << wrong->error;
  std::remove(file.c_str());
}

TEST(Scheduler, TheRouterSaysWhatItIs) {
  auto p = play("require(package ip6); a :: Idle; a -> Queue -> Unqueue -> Discard; a [1] -> d :: Discard;", false);
  ASSERT_EQ(p->error, "");
  EXPECT_EQ(p->read("requirements"), "package ip6\n");
  EXPECT_EQ(p->read("list"), "5\na\nQueue@2\nUnqueue@3\nDiscard@4\nd\n");
  EXPECT_EQ(p->read("config"),
            "require(package ip6);\na :: Idle;\nQueue@2 :: Queue;\nUnqueue@3 :: Unqueue;\nDiscard@4 :: Discard;\n"
            "d :: Discard;\n\na -> Queue@2\n    -> Unqueue@3\n    -> Discard@4;\na [1] -> d;\n");
}

TEST(Scheduler, TheGraphSaysWhoseTimeItIs) {
  const auto clock = [](const std::string& text, bool simulated = false) {
    auto graph = parse_click(text, "g");
    auto router = graph.ok() ? build_router(*graph, elements(), text) : Result<Router>(graph.error());
    EXPECT_TRUE(router.ok()) << (router.ok() ? "" : to_string(router.error()));
    return router.ok() ? flow_clock(*router, simulated) : FlowClock::kRun;
  };
  const std::string in = "FromDump(x) -> IPInput -> ", police = "Police(1Mbps, 3000) -> ", wait = "Script(wait 1s);";
  for (const std::string& text :
       {police + "Discard;", police + "Switch(0) -> Discard;", "RoundRobinSwitch -> " + police + "Discard;",
        "Counter(COUNT_CALL 3 stop) -> " + police + "Discard;", police + "Discard; DriverManager(pause, stop);"}) {
    EXPECT_EQ(clock(in + text), FlowClock::kOwn) << text;
    EXPECT_EQ(clock(in + text, true), FlowClock::kOwn) << text;
  }
  for (const std::string& text :
       {police + "Queue -> Unqueue -> Discard;", std::string("Queue -> RatedUnqueue(10) -> Discard;"),
        std::string("Queue -> Shaper(10) -> Discard;"), police + "Discard; Script(wait 1s);"}) {
    EXPECT_EQ(clock(in + text), FlowClock::kPackets) << text;
    EXPECT_EQ(clock(in + text, true), FlowClock::kPackets) << text;
  }
  EXPECT_EQ(clock(in + "Queue -> Unqueue -> Discard;"), FlowClock::kRun);  // nobody looks
  EXPECT_EQ(clock(in + "Queue -> Unqueue -> Discard;" + wait), FlowClock::kPackets);
  EXPECT_EQ(clock(in + "Queue -> Unqueue -> Discard;" + wait, true), FlowClock::kRun);
  EXPECT_EQ(clock("RatedSource -> IPInput -> " + police + "Discard;"), FlowClock::kRun);
  EXPECT_EQ(clock(in + "Queue -> RatedUnqueue(9) -> Discard; RatedSource -> Discard;"), FlowClock::kRun);
  EXPECT_EQ(clock("FromDevice(lo) -> IPInput -> s :: Switch(0) -> " + police + "Discard;"), FlowClock::kRun);
  EXPECT_EQ(clock(in + police + "s :: Switch(0) -> ToDevice(lo);"), FlowClock::kRun);
}

TEST(Scheduler, ThePlannerSendsSuchGraphsHere) {
  auto p = play("InfiniteSource -> Queue -> Unqueue -> Discard;", false);
  ASSERT_NE(p->router, nullptr);
  EXPECT_EQ(p->router->scheduled, "'Unqueue@3' pulls packets from 'Queue@2'");
  const auto plan = make_plan(*p->router);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().message,
            "the packet scheduler has to run this graph: 'Unqueue@3' pulls packets from 'Queue@2'");
  EXPECT_EQ(describe_schedule(*p->router).find("packet scheduler: 'Unqueue@3' pulls packets from 'Queue@2'\n"), 0u);
  auto plain = play("InfiniteSource(LIMIT 3) -> Counter -> Discard;");
  EXPECT_EQ(plain->router->scheduled, "");
  EXPECT_TRUE(make_plan(*plain->router).ok());
  EXPECT_EQ(plain->report.packets_in, 3u);
}

}  // namespace
}  // namespace sluice
