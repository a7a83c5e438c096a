// sluice bench: rates with their machine, input and a check against the oracle before anything is timed.
// host only
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <ctime>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "apps/sluice/app.h"
#include "apps/sluice/inputs.h"
#include "apps/sluice/pipeline.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "bench.h"
#include "control/machine.h"
#include "control/standard_graph.h"
#include "elements/ip_input/stage.h"
#include "formats/classbench.h"
#include "generate/random.h"
#include "generate/routes.h"
#include "generate/rules.h"
#include "generate/traffic.h"
#include "net/parse.h"
#include "ports/pcap/capture_writer.h"
#include "studies/study.h"
#include "tables/acl/work.h"
#include "tables/adjacency/adjacency_model.h"

namespace sluice::app {

// gen.cpp
std::vector<FlowRegion> regions_of(const RuleSet& set);
RuleShape shape_of(const std::string& name);

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  gmtime_r(&now, &tm);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
  return text;
}

void require(const Verified& v, const std::string& what) {
  if (v.mismatches == 0) return;
  fail(Exit::kCheckFailed,
       fmt::format("{}: {} of {} sampled results differ from the reference ({}); nothing is reported", what,
                   v.mismatches, v.sample, v.oracle),
       "this is a defect of sluice; please report it with this command line");
}

Rib rib_of(const BenchOptions& o, std::string& hash) {
  if (const std::string& given = o.like.empty() ? o.routes : o.like; !given.empty()) {
    Sha256 sum;
    const char* const option = o.like.empty() ? "--routes" : "--like";
    const std::vector<std::string> files = split_route_files(given);
    NamedInputs named;
    add_route_inputs(named, option, files);
    for (const auto& [name, path] : named) check_regular(name, path);
    InputSet inputs = open_inputs(named);
    for (const auto& [name, path] : named) sum.update(need(sha256_of_file(path), Exit::kIo));
    hash = sum.finish();
    return read_routes(inputs, files, nullptr);
  }
  const RoutesOptions r{.ipv4_count = o.ipv4, .ipv6_count = o.ipv6, .seed = o.seed};
  const std::string text = need(generate_routes(r), Exit::kUsage);
  hash = sha256(text);
  Rib rib;
  need(parse_routes(text, "generated routes", rib));
  rib.settle();
  return rib;
}

Addresses draw_addresses(const Rib& rib, const std::string& pattern, size_t n, uint64_t seed) {
  Addresses a;
  Random random(seed, pattern == "uniform" ? 1 : pattern == "prefix" ? 2 : 3);
  if (pattern == "uniform") {
    for (size_t i = 0; i < n; ++i) {
      a.v4.push_back(static_cast<uint32_t>(random.next()));
      a.hi.push_back(uint64_t{1} << 61 | random.next() >> 3);
      a.lo.push_back(random.next());
    }
    return a;
  }
  auto host4 = [&](const Route4& r) {
    return r.address | (static_cast<uint32_t>(random.next()) & ~high_mask32(r.length));
  };
  auto host6 = [&](const Route6& r) {
    return std::pair{r.hi | (random.next() & ~high_mask64(std::min<unsigned>(r.length, 64))),
                     r.lo | (random.next() & ~high_mask64(r.length > 64 ? r.length - 64u : 0))};
  };
  const auto routes4 = rib.routes4();
  const auto routes6 = rib.routes6();
  if (pattern == "prefix") {
    for (size_t i = 0; i < n; ++i) {
      if (!routes4.empty()) a.v4.push_back(host4(routes4[random.below(routes4.size())]));
      if (routes6.empty()) continue;
      const auto [hi, lo] = host6(routes6[random.below(routes6.size())]);
      a.hi.push_back(hi);
      a.lo.push_back(lo);
    }
    return a;
  }
  // A fixed set of hosts, the k-th drawn with k^-1.
  const size_t hosts = 65'536;
  Addresses set;
  for (size_t i = 0; i < hosts; ++i) {
    if (!routes4.empty()) set.v4.push_back(host4(routes4[random.below(routes4.size())]));
    if (routes6.empty()) continue;
    const auto [hi, lo] = host6(routes6[random.below(routes6.size())]);
    set.hi.push_back(hi);
    set.lo.push_back(lo);
  }
  const AliasTable popular(zipf_weights(hosts, 1.0));
  for (size_t i = 0; i < n; ++i) {
    const uint32_t k = popular.draw(random);
    if (!routes4.empty()) a.v4.push_back(set.v4[k]);
    if (routes6.empty()) continue;
    a.hi.push_back(set.hi[k]);
    a.lo.push_back(set.lo[k]);
  }
  return a;
}

void check_graph(const BenchOptions& o, const StandardGraph& graph, const std::string& capture,
                 const TemporaryFolder& folder, const std::string& what, Verified& verified) {
  std::string sums[2];
  uint64_t packets = 0;
  for (const int reference : {0, 1}) {
    StandardGraph checked = graph;
    checked.in = capture;
    checked.out = folder / fmt::format("check{}.pcap", reference);
    if (reference == 1) {
      checked.acl_algorithm = LinearAcl::kName;
      checked.route_algorithm = checked.route_algorithm6 = Trie::kName;
    }
    auto pipeline = parse_pipeline(need(standard_graph_text(checked)), "standard graph", {});
    load_pipeline_tables(*pipeline, {});
    RunOptions options;
    options.max_packets = o.sample;
    const PipelineRun done = run_pipeline(*pipeline, options);
    if (done.interrupted) fail(Exit::kInterrupted, "interrupted");
    packets = done.report.packets_in;
    sums[reference] = need(sha256_of_file(checked.out), Exit::kIo) + drops_text(done.report.drops);
  }
  if (o.spoil) sums[0] += "!";
  verified.sample += packets;
  if (sums[0] != sums[1]) verified.mismatches += 1;
  require(verified, what);
}

namespace {

using Options = BenchOptions;

// Seconds that this thread has had a processor.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Runs f, which does `items` items on this thread, for a tenth of a second of it; items a second in millions. By the
// thread's own time, so that a neighbour on the same core takes nothing away.
double rate_of(uint64_t items, const std::function<void()>& f) {
  const double begin = thread_seconds();
  double seconds = 0;
  uint64_t done = 0;
  do {
    f();
    done += items;
    seconds = thread_seconds() - begin;
  } while (seconds < 0.1);
  return static_cast<double>(done) / seconds * 1e-6;
}

// The same by `workers` threads at once, f(w) for each; by the wall's time, as they may share cores.
double rate_together(unsigned workers, uint64_t items, const std::function<void(unsigned)>& f) {
  std::barrier start(static_cast<ptrdiff_t>(workers));
  std::vector<double> rates(workers);
  const auto one = [&](unsigned w) {
    start.arrive_and_wait();
    const uint64_t begin = now_ns();
    uint64_t done = 0, took = 0;
    do {
      f(w);
      done += items;
      took = now_ns() - begin;
    } while (took < 100'000'000);
    rates[w] = static_cast<double>(done) / static_cast<double>(took) * 1e3;
  };
  std::vector<std::jthread> threads;
  for (unsigned w = 1; w < workers; ++w) {
    auto thread = start_thread([&one, w] { one(w); });
    if (!thread.ok()) {
      // The others run without it, and end.
      for (unsigned missing = w; missing < workers; ++missing) start.arrive_and_drop();
      start.arrive_and_drop();
      threads.clear();
      fail(Exit::kIo, std::move(thread).error());
    }
    threads.push_back(std::move(*thread));
  }
  one(0);
  threads.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

RuleSet rules_of(const Options& o, std::string& text, std::string& format) {
  if (!o.rules.empty()) {
    check_regular("--rules", o.rules);
    InputSet inputs = open_inputs({{"--rules", o.rules}});
    return read_rules(inputs, o.rules, o.format, &format, &text);
  }
  const RulesOptions r{.shape = shape_of(o.shape), .count = o.count, .seed = o.seed};
  text = need(generate_rules(r), Exit::kUsage);
  format = "classbench";
  return need(parse_classbench(text, "generated rules"));
}

// Packets drawn from the rules. Ends the program when there can be none.
std::vector<FlowKey> keys_of(const RuleSet& set, uint64_t packets, uint64_t seed) {
  TrafficOptions t;
  t.packets = packets;
  t.flows = static_cast<uint32_t>(std::min<uint64_t>(t.packets, 1'000'000));
  t.zipf = 0;
  t.size_mix = SizeMix::kFixed;
  t.seed = seed;
  t.regions = regions_of(set);
  TrafficGenerator generator = need(TrafficGenerator::create(t));
  std::vector<FlowKey> keys;
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  for (uint64_t i = 0; i < t.packets; ++i) {
    const FrameHeader header = generator.next(frame.data());
    Headers headers;
    if (parse_ethernet(frame.data(), header.captured, header.wire_bytes, headers) == ParseStatus::kOk)
      keys.push_back(headers.key);
  }
  if (keys.empty()) fail(Exit::kBadInput, "no packet can match these rules");
  return keys;
}

// One list by several algorithms: the cases of each, checked against the oracle on the same packets.
void classify_list(const Options& o, const OpenDevices& devices, const RuleSet& set, const std::string& source,
                   const std::vector<std::string>& algorithms, Verified& verified, std::vector<Case>& cases) {
  const std::vector<FlowKey> keys = keys_of(set, o.packets != 0 ? o.packets : 200'000, o.seed);
  // Two thousand million comparisons at most: some seconds.
  const uint64_t sample =
      std::min({o.sample, uint64_t{keys.size()}, 100 + (uint64_t{1} << 31) / (set.rules.size() + 1)});
  std::vector<uint32_t> want;
  {
    const LoadedAcl oracle = build_loaded_acl(set, source, "", LinearAcl::kName);
    stop_if_interrupted();
    for (uint64_t i = 0; i < sample; ++i) want.push_back(oracle.view.lookup(keys[i * keys.size() / sample]));
  }
  for (const std::string& asked : algorithms) {
    if (asked == BitvecAcl::kName && algorithms.size() > 1 && set.rules.size() > BitvecAcl::kMaxRules) {
      note(fmt::format("{}: {} is skipped, it takes {} rules at most", source, asked,
                       with_commas(BitvecAcl::kMaxRules)));
      continue;
    }
    const LoadedAcl acl = build_loaded_acl(set, source, "", asked, table_target(devices));
    stop_if_interrupted();
    auto classify_all = [&](std::vector<uint32_t>& found) {
      const FlowKey* burst[kAclBurst];
      for (size_t i = 0; i < keys.size(); i += kAclBurst) {
        const size_t n = std::min(kAclBurst, keys.size() - i);
        for (size_t k = 0; k < n; ++k) burst[k] = &keys[i + k];
        acl.view.lookup_burst(burst, found.data() + i, n);
      }
    };
    std::vector<uint32_t> found(keys.size());
    classify_all(found);
    if (o.spoil) found[0] += 1;
    Verified own{sample, 0, LinearAcl::kName};
    for (uint64_t i = 0; i < sample; ++i) own.mismatches += found[i * keys.size() / sample] != want[i] ? 1 : 0;
    const std::string name = fmt::format("{}/{}", source, acl.algorithm);
    require(own, name);
    // What `auto` has chosen may have been asked for by name too.
    if (std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return c.name.starts_with(name); })) continue;
    verified.sample += own.sample;
    const size_t first = cases.size();
    if (!o.device_only) {
      // Workers are those of a device where there is one.
      const unsigned workers = devices.options.devices.empty() ? o.workers : 1;
      Case c{workers > 1 ? fmt::format("{}/x{}", name, workers) : name, "Mpackets/s", {}};
      std::vector<std::vector<uint32_t>> found_by(workers > 1 ? workers : 0, std::vector<uint32_t>(keys.size()));
      Progress progress("repetition", o.repetitions);
      for (unsigned r = 0; r < o.repetitions; ++r) {
        c.values.push_back(workers > 1
                               ? rate_together(workers, keys.size(), [&](unsigned w) { classify_all(found_by[w]); })
                               : rate_of(keys.size(), [&] { classify_all(found); }));
        progress.update(r + 1);
        stop_if_interrupted();
      }
      progress.clear();
      for (const std::vector<uint32_t>& of_worker : found_by)
        if (of_worker != found) fail(Exit::kCheckFailed, fmt::format("{}: workers found different rules", c.name));
      cases.push_back(std::move(c));
    }
    if (!devices.options.devices.empty()) {
      TableSet tables;
      tables.acls["t"] = acl.image;
      std::vector<uint32_t> expected;
      for (const uint32_t rule : found) expected.push_back(result_digest(rule, 0));
      add_device_cases(o, devices, name, "ACL(TABLE t, DEFAULT permit)", tables, keys, expected, {}, cases);
    }
    const ImageSection* lookup = acl.image->find(SectionTag::kAclLookup);
    Json more{{"build_seconds", acl.build_seconds},
              {"bytes", acl.image->bytes().size()},
              {"search_bytes", lookup->bytes},
              {"rules", acl.count}};
    if (const auto work = acl_work(*acl.image); work.ok())
      more.update({{"tables", work->tables}, {"reads", work->reads}, {"pruned", work->pruned}});
    for (size_t i = first; i < cases.size(); ++i) cases[i].more.update(more);
  }
}

Exit bench_classify(const Options& o) {
  const OpenDevices devices = open_devices(o.device);
  std::vector<std::string> algorithms;
  for (const std::string& name : split_commas(o.algorithm)) algorithms.push_back(check_acl_algorithm(name));
  if (algorithms.empty()) algorithms.push_back(check_acl_algorithm({}));
  Verified verified{0, 0, LinearAcl::kName};
  std::vector<Case> cases;
  Sha256 input;
  if (!o.rules.empty()) {
    InputSet inputs = open_inputs({{"--rules", o.rules}});
    std::string text;
    const RuleSet set = read_rules(inputs, o.rules, o.format, nullptr, &text);
    input.update(text);
    classify_list(o, devices, set, std::filesystem::path(o.rules).filename().string(), algorithms, verified, cases);
  } else {
    for (const std::string& shape : o.shapes) {
      for (const uint32_t count : o.counts) {
        const std::string text =
            need(generate_rules({.shape = shape_of(shape), .count = count, .seed = o.seed}), Exit::kUsage);
        input.update(text);
        classify_list(o, devices, need(parse_classbench(text, "generated rules")), fmt::format("{}_{}", shape, count),
                      algorithms, verified, cases);
      }
    }
  }
  return bench_report(o, "classify", input.finish(), verified, std::move(cases),
                      {{"device", devices.label},
                       {"gpu", gpu_name(devices)},
                       {"workers", o.workers},
                       {"clock", devices.options.devices.empty() && o.workers > 1 ? "wall" : "thread"}});
}

// `ways` neighbours behind each next hop.
Image made_up_adjacencies(uint32_t next_hops, unsigned ways) {
  AdjacencyModel model(next_hops);
  for (uint32_t hop = 1; hop <= next_hops; ++hop) {
    for (unsigned w = 0; w < ways; ++w) model.add(hop, made_up_neighbour(hop * ways + w));
  }
  return need(build_adjacencies(model));
}

// The route's lookup and then the neighbour's, 256 addresses at a time: with one behind each next hop (a second table's
// group and adjacency), and with four of which the packet's flow hash takes one (the hash, and a bucket between them).
void add_group_cases(const Options& o, const LoadedRoutes& routes, int family, const Addresses& a,
                     const std::string& name, std::vector<Case>& cases) {
  constexpr size_t kBatch = 256;
  const size_t count = (family == 4 ? a.v4.size() : a.hi.size()) / kBatch * kBatch;
  if (count == 0) return;
  for (const unsigned ways : {1u, 4u}) {
    const Image image = made_up_adjacencies(routes.names.count(), ways);
    const AdjacencyView view = need(open_adjacencies(image));
    uint32_t hops[kBatch];
    uint64_t sum = 0;
    const auto all = [&] {
      for (size_t at = 0; at < count; at += kBatch) {
        family == 4 ? routes.lookup4(a.v4.data() + at, hops, kBatch)
                    : routes.lookup6(a.hi.data() + at, a.lo.data() + at, hops, kBatch);
        for (size_t i = 0; i < kBatch; ++i) {
          const Adjacency* to = view.select_by(hops[i], [&] {
            FlowKey key;
            key.family = static_cast<uint8_t>(family);
            key.dst_hi = family == 4 ? 0 : a.hi[at + i];
            key.dst_lo = family == 4 ? a.v4[at + i] : a.lo[at + i];
            return flow_hash(key);
          });
          sum += to == nullptr ? 0 : to->rewrite[5];
        }
      }
    };
    Case c{name + (ways == 1 ? "/adjacency" : "/groups"), "Mlookups/s", {}, {{"neighbours", ways}}};
    for (unsigned r = 0; r < o.repetitions; ++r) {
      c.values.push_back(rate_of(count, all));
      stop_if_interrupted();
    }
    c.more["sum"] = sum % 256;  // so that nothing is left out
    cases.push_back(std::move(c));
  }
}

std::vector<uint64_t> halves_of(const Addresses& a) {
  std::vector<uint64_t> halves;
  halves.reserve(a.hi.size() * 2);
  for (size_t i = 0; i < a.hi.size(); ++i) halves.insert(halves.end(), {a.hi[i], a.lo[i]});
  return halves;
}

// One family's table of one size by every algorithm, at prefix-weighted addresses.
void route_tables(const Options& o, const OpenDevices& devices, const Rib& table, int family,
                  const std::vector<std::string>& algorithms, Verified& verified, std::vector<Case>& cases) {
  // The other family is empty, and as small as can be.
  const auto build = [&](const std::string& name) {
    return build_routes(table, family == 4 ? name : Trie::kName, family == 6 ? name : Trie::kName);
  };
  const auto opened = [](Image image) {
    LoadedRoutes routes;
    routes.image = std::make_shared<const Image>(std::move(image));
    open_routes(routes);
    return routes;
  };
  const Addresses a = draw_addresses(table, "prefix", o.packets != 0 ? o.packets : size_t{1} << 20, o.seed);
  const auto look = [&](const LoadedRoutes& in, std::vector<uint32_t>& out, size_t upto) {
    family == 4 ? in.lookup4(a.v4.data(), out.data(), upto) : in.lookup6(a.hi.data(), a.lo.data(), out.data(), upto);
  };
  const size_t count = family == 4 ? a.v4.size() : a.hi.size();
  // The oracle is asked about a sample; of all addresses, what agrees with it is.
  std::vector<uint32_t> expected(count), found(count);
  const size_t sample = std::min<size_t>(o.sample, count);
  look(opened(need(build(Trie::kName))), found, sample);
  look(opened(need(build(kLpmAuto))), expected, count);
  Verified own{sample, 0, Trie::kName};
  for (size_t i = 0; i < sample; ++i) own.mismatches += found[i] != expected[i] ? 1 : 0;
  const size_t entries = table.size();
  require(own, fmt::format("ipv{}_{}", family, entries));
  const std::vector<uint64_t> halves = devices.options.devices.empty() ? std::vector<uint64_t>{} : halves_of(a);
  for (const std::string& algorithm : algorithms) {
    const std::string name = fmt::format("ipv{}_{}/{}", family, entries, algorithm);
    if (algorithm == Linear::kName && entries > kMostLinear) {
      note(fmt::format("{} is skipped: it takes {} routes at most", name, with_commas(kMostLinear)));
      continue;
    }
    Progress progress("");
    progress.step(name);
    // Short builds three times, as the first one pays for the memory's pages.
    double seconds = 0;
    std::optional<Image> image;
    for (int i = 0; i < 3 && (i == 0 || seconds < 0.3); ++i) {
      const double begin = thread_seconds();
      auto built = build(algorithm);
      const double took = thread_seconds() - begin;
      if (!built) {
        note(fmt::format("{} is skipped: {}", name, built.error().message));
        break;
      }
      seconds = i == 0 ? took : std::min(seconds, took);
      image.emplace(std::move(*built));
    }
    stop_if_interrupted();
    if (!image) continue;
    const LoadedRoutes routes = opened(std::move(*image));
    // A scan of few addresses takes as long as other lookups of many; a device's answers are all compared below.
    const size_t most = o.device_only ? std::min(count, size_t{1} << 18) : count;
    const size_t some = algorithm == Linear::kName ? std::clamp<size_t>((size_t{1} << 27) / entries, 1, most) : most;
    look(routes, found, some);
    if (o.spoil) found[0] += 1;
    own = {some, 0, Trie::kName};
    for (size_t i = 0; i < some; ++i) own.mismatches += found[i] != expected[i] ? 1 : 0;
    require(own, name);
    verified.sample += own.sample;
    const size_t first = cases.size();
    if (!o.device_only) {
      Case c{name, "Mlookups/s", {}};
      for (unsigned r = 0; r < o.repetitions; ++r) {
        c.values.push_back(rate_of(some, [&] { look(routes, found, some); }));
        stop_if_interrupted();
      }
      cases.push_back(std::move(c));
    }
    if (!devices.options.devices.empty())
      add_resident_lookups(o, devices, name, *routes.image, a.v4, halves, expected, true, cases);
    const Json more{{"build_seconds", seconds},
                    {"bytes", routes.image->section(family == 4 ? SectionTag::kFib4 : SectionTag::kFib6).size()},
                    {"routes", entries}};
    for (size_t i = first; i < cases.size(); ++i) cases[i].more.update(more);
  }
}

// Tables like a given one, or like the generated one, at several sizes.
Exit bench_route_sizes(const Options& o) {
  const OpenDevices devices = open_devices(o.device);
  const std::vector<std::string> asked = split_commas(o.algorithm);
  for (const std::string& name : asked) {
    const auto all6 = lpm_algorithm_names6();
    if (std::find(all6.begin(), all6.end(), name) == all6.end()) check_lpm_algorithms(name);
  }
  std::string hash;
  const Rib given = rib_of(o, hash);
  std::vector<Case> cases;
  Verified verified{0, 0, Trie::kName};
  for (const int family : {4, 6}) {
    Rib like(given.next_hops());
    for (const Route4& r : given.routes4()) {
      if (family == 4) like.add4(r.address, r.length, r.next_hop);
    }
    for (const Route6& r : given.routes6()) {
      if (family == 6) like.add6(r.hi, r.lo, r.length, r.next_hop);
    }
    like.settle();
    if (like.size() == 0) continue;
    std::vector<std::string> algorithms;
    for (const std::string& name : family == 4 ? lpm_algorithm_names4() : lpm_algorithm_names6()) {
      if (asked.empty() || std::find(asked.begin(), asked.end(), name) != asked.end()) algorithms.push_back(name);
    }
    for (const uint32_t count : o.counts)
      route_tables(o, devices, need(generate_table_like(like, {count, o.seed})), family, algorithms, verified, cases);
  }
  return bench_report(
      o, "route", hash, verified, std::move(cases),
      {{"device", devices.label}, {"gpu", gpu_name(devices)}, {"workers", o.workers}, {"clock", "thread"}});
}

Exit bench_route(const Options& o) {
  if (o.workers > 1 && o.device.device == "cpu")
    fail(Exit::kUsage, "bench route measures one core, and --workers are the threads that feed a device",
         "leave --workers away, or give --device");
  if (!o.counts.empty()) return bench_route_sizes(o);
  const OpenDevices devices = open_devices(o.device);
  check_lpm_algorithms(o.algorithm);
  std::string hash;
  Rib rib = rib_of(o, hash);
  const LoadedRoutes oracle = build_loaded_routes(rib, {}, Trie::kName);
  const LoadedRoutes routes = build_loaded_routes(std::move(rib), {}, route_algorithms_on(devices, o.algorithm).text());
  const size_t n = o.packets != 0 ? o.packets : size_t{1} << 20;
  Verified verified{0, 0, Trie::kName};
  std::vector<Case> cases;
  Progress progress("");
  for (const std::string pattern : {"uniform", "prefix", "zipf"}) {
    const Addresses a = draw_addresses(routes.rib, pattern, n, o.seed);
    std::vector<uint32_t> found(n), expected(n);
    for (const int family : {4, 6}) {
      const size_t count = family == 4 ? a.v4.size() : a.hi.size();
      if (count == 0 || (family == 4 ? routes.rib.routes4().empty() : routes.rib.routes6().empty())) continue;
      auto look = [&](const LoadedRoutes& in, std::vector<uint32_t>& out, size_t upto) {
        family == 4 ? in.lookup4(a.v4.data(), out.data(), upto)
                    : in.lookup6(a.hi.data(), a.lo.data(), out.data(), upto);
      };
      const size_t sample = std::min<size_t>(o.sample, count);
      look(routes, found, sample);
      look(oracle, expected, sample);
      if (o.spoil) found[0] += 1;
      verified.sample += sample;
      for (size_t i = 0; i < sample; ++i) verified.mismatches += found[i] != expected[i] ? 1 : 0;
      require(verified, pattern);
      progress.step(fmt::format("IPv{} {}", family, pattern));
      const std::string& name = family == 4 ? routes.algorithm4 : routes.algorithm6;
      Case c{fmt::format("ipv{}/{}/{}", family, name, pattern),
             "Mlookups/s",
             {},
             {{"bytes", routes.image->section(family == 4 ? SectionTag::kFib4 : SectionTag::kFib6).size()}}};
      for (unsigned r = 0; r < o.repetitions && !o.device_only; ++r) {
        c.values.push_back(rate_of(count, [&] { look(routes, found, count); }));
        stop_if_interrupted();
      }
      if (!devices.options.devices.empty()) {
        look(routes, found, count);
        const std::vector<uint64_t> halves = family == 6 ? halves_of(a) : std::vector<uint64_t>{};
        found.resize(count);
        add_resident_lookups(o, devices, c.name, *routes.image, family == 4 ? a.v4 : std::vector<uint32_t>{}, halves,
                             found, false, cases);
        found.resize(n);
      }
      if (!devices.options.devices.empty() && family == 4 && !o.lookups_only) {
        std::vector<FlowKey> keys(count);
        std::vector<uint32_t> digests(count);
        for (size_t i = 0; i < count; ++i) {
          keys[i].family = 4;
          keys[i].dst_lo = a.v4[i];
          digests[i] = result_digest(0, found[i]);
        }
        TableSet tables;
        tables.routes["t"] = routes.image;
        add_device_cases(o, devices, c.name, "IPRoute(TABLE t)", tables, keys, digests, std::span(found).first(count),
                         cases);
      }
      if (o.device_only) continue;
      const std::string plain = c.name;
      cases.push_back(std::move(c));
      if (pattern == "prefix") add_group_cases(o, routes, family, a, plain, cases);
    }
  }
  progress.clear();
  return bench_report(o, "route", hash, verified, std::move(cases),
                      {{"routes4", routes.rib.routes4().size()},
                       {"routes6", routes.rib.routes6().size()},
                       {"build_seconds", routes.build_seconds},
                       {"device", devices.label},
                       {"gpu", gpu_name(devices)},
                       {"workers", o.workers}});
}

// The graph over the rules and routes of the options, or generated ones in `folder`.
StandardGraph bench_graph(const Options& o, const OpenDevices& devices, const BenchFolder& folder,
                          const std::string& rules, Sha256& hash) {
  StandardGraph g;
  hash.update(rules);
  g.acl = o.rules;
  g.acl_format = o.format;
  if (g.acl.empty()) {
    g.acl = folder / "rules";
    write_file(g.acl, rules);
  }
  g.acl_algorithm = acl_algorithm_on(devices, o.algorithm);
  const LpmNames names = route_algorithms_on(devices, o.route_algorithm, "--route-algorithm");
  g.route_algorithm = names.algorithm4;
  g.route_algorithm6 = names.algorithm6;
  g.routes = split_route_files(o.routes);
  if (g.routes.empty()) {
    const RoutesOptions r{.ipv4_count = o.ipv4, .ipv6_count = o.ipv6, .seed = o.seed};
    const std::string routes = need(generate_routes(r), Exit::kUsage);
    hash.update(routes);
    g.routes = {folder / "routes"};
    write_file(g.routes[0], routes);
  } else {
    for (const std::string& file : g.routes) {
      check_regular("--routes", path_of_route_file(file));
      hash.update(need(sha256_of_file(path_of_route_file(file)), Exit::kIo));
    }
  }
  // Packets of the access list's regions mostly have destinations that no table covers: a default route makes them go
  // the whole way.
  InputFile first = need(InputFile::open(path_of_route_file(g.routes[0])), Exit::kIo);
  if (!need(Image::is_next(first))) {
    write_file(folder / "default", "0.0.0.0/0 1\n::/0 1\n");
    g.routes.insert(g.routes.begin(), folder / "default");
  }
  if (!o.adjacencies.empty()) {
    check_regular("--adjacencies", o.adjacencies);
    g.adjacencies = {o.adjacencies};
  }
  g.permit_by_default = true;
  return g;
}

// Regions of real shapes have many martian addresses, which would be dropped before the access list is asked: only
// packets that pass the header checks count here.
void write_checked_traffic(const TrafficOptions& t, const std::string& capture) {
  auto writer = need(CaptureWriter::create(capture), Exit::kIo);
  TrafficGenerator generator = need(TrafficGenerator::create(t));
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  uint64_t kept = 0;
  for (uint64_t tried = 0; kept < t.packets && tried < 50 * t.packets; ++tried) {
    const FrameHeader header = generator.next(frame.data());
    Packet p;
    p.frame = frame.data();
    p.end = header.captured;
    p.wire_end = header.wire_bytes;
    if (IpInputStage{}(p) != 0) continue;
    if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
    ++kept;
  }
  if (kept == 0) fail(Exit::kBadInput, "no packet that passes the header checks can match these rules");
  need(writer.commit(), Exit::kIo);
}

Exit bench_pipeline(const Options& o) {
  const OpenDevices devices = open_devices(o.device);
  BenchFolder folder;
  Progress progress("");
  progress.step("generating tables and traffic");
  Sha256 hash;
  std::string text, format;
  const RuleSet set = rules_of(o, text, format);
  const StandardGraph g = bench_graph(o, devices, folder, text, hash);
  InputSet inputs;
  const Rib rib = read_routes(inputs, g.routes, nullptr);
  std::vector<IpPrefix> destinations;
  for (const Route4& r : rib.routes4()) destinations.push_back({{0, r.address, 4}, r.length});
  std::vector<Case> cases;
  Verified verified{0, 0, "linear, trie"};
  for (const uint32_t size : o.sizes) {
    for (const bool with_acl : {true, false}) {
      TrafficOptions t;
      t.packets = 65'536;
      t.flows = 262'144;  // more than packets: some are passed over
      t.zipf = 0;
      t.size_mix = SizeMix::kFixed;
      t.fixed_bytes = size;
      t.seed = o.seed;
      // With the access list its own regions are hit; without it the whole table is.
      if (with_acl) {
        t.regions = regions_of(set);
      } else {
        t.destinations = destinations;
      }
      const std::string capture = folder / fmt::format("{}-{}.pcap", size, with_acl ? "acl" : "all");
      write_checked_traffic(t, capture);
      hash.update(need(sha256_of_file(capture), Exit::kIo));
      StandardGraph mine = g;
      if (!with_acl) mine.acl.clear();

      progress.step(fmt::format("checking {} bytes {}", size, with_acl ? "with ACL" : "without ACL"));
      check_graph(o, mine, capture, folder, fmt::format("{} bytes", size), verified);

      mine.in = capture;
      mine.in_memory = true;
      mine.limit = o.packets != 0 ? o.packets : with_acl ? 1'000'000 : 4'000'000;
      auto pipeline = parse_pipeline(need(standard_graph_text(mine)), "standard graph", {});
      load_pipeline_tables(*pipeline, {});
      // All workers play one copy of the frames: what a card writes to memory is not read from as many places.
      const auto frames = std::make_shared<FrameCache>();
      for (const uint32_t batch : o.batches) {
        std::string name = fmt::format("{}/{}B/x{}", with_acl ? "acl+routes" : "routes", size, o.workers);
        if (o.batches.size() > 1) name += fmt::format("/{}", batch);
        cases.push_back(measure_pipeline(o, devices, *pipeline, batch, name, frames, progress));
        if (cases.back().reason.empty()) cases.back().more["frame_bytes"] = size;
      }
      if (with_acl) {
        progress.step(fmt::format("{} bytes, device-resident", size));
        add_resident_frames(o, devices, *pipeline, capture, fmt::format("acl+routes/{}B", size), cases);
      }
    }
  }
  progress.clear();
  return bench_report(o, "pipeline", hash.finish(), verified, std::move(cases),
                      {{"rules", set.rules.size()},
                       {"routes4", rib.routes4().size()},
                       {"routes6", rib.routes6().size()},
                       {"device", devices.label},
                       {"gpu", gpu_name(devices)},
                       {"workers", o.workers}});
}

// One run by o.workers workers, each with its own source, programs and counters, as with one receive queue each.
std::vector<RunReport> run_together(const BenchOptions& o, const OpenDevices& devices, const Pipeline& pipeline,
                                    uint32_t batch, const std::shared_ptr<FrameCache>& frames) {
  std::vector<RunReport> reports(o.workers);
  std::vector<std::exception_ptr> failures(o.workers);
  {
    // They start together, or their rates would not be of the same time.
    std::barrier start(static_cast<ptrdiff_t>(o.workers));
    std::vector<std::jthread> threads;
    threads.reserve(o.workers);
    for (unsigned w = 0; w < o.workers; ++w) {
      auto one = [&, w] {
        bool waited = false;
        try {
          RunOptions options;
          options.batch = batch;
          options.frames = frames;
          options.latency_target_ns = latency_target_ns(o.latency_target);
          options.stop = &interrupted();
          options.device = devices.options;
          options.qos = o.qos;
          if (!devices.options.devices.empty()) {
            options.device.devices = {devices.options.devices[w % devices.options.devices.size()]};
          }
          auto snapshot = need(bind_plan(pipeline.plan, pipeline.router, pipeline.tables));
          need(Engine::check_tables(pipeline.router, pipeline.plan, options, *snapshot), Exit::kUnavailable);
          auto runtime = need(Engine::create(pipeline.router, pipeline.plan, options));
          runtime->publisher().publish(std::move(snapshot));
          waited = true;
          start.arrive_and_wait();
          need(runtime->run(reports[w]));
        } catch (...) {
          failures[w] = std::current_exception();
          if (!waited) start.arrive_and_drop();
        }
      };
      if (o.workers == 1) {
        one();
      } else {
        auto thread = start_thread(one);
        if (!thread.ok()) {
          // The others start without it.
          for (unsigned missing = w; missing < o.workers; ++missing) start.arrive_and_drop();
          fail(Exit::kIo, std::move(thread).error());
        }
        threads.push_back(std::move(*thread));
      }
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  stop_if_interrupted();
  return reports;
}

// What the devices of a run took, each counted once, however many workers have it.
struct DevicesTook {
  double watts = 0, utilisation = -1;  // -1: not known

  void read(const std::vector<RunReport>& reports) {
    std::map<unsigned, DevicePower> by_device;
    for (const RunReport& one : reports)
      for (const DeviceReport& d : one.devices) by_device[d.info.ordinal] = d.power;
    watts = 0;
    double busy = 0;
    for (const auto& [ordinal, of_device] : by_device) {
      watts += std::max(0.0, of_device.watts);
      busy = of_device.utilisation < 0 ? -1 : busy < 0 ? busy : busy + of_device.utilisation;
    }
    if (!by_device.empty()) utilisation = busy < 0 ? -1 : busy / static_cast<double>(by_device.size());
  }
};

// Of the last run, `mpps` packets a second in the middle one.
void add_device_figures(Json& more, const RunReport& last, uint64_t answered, const DevicesTook& took, double mpps) {
  const auto& channels = last.devices[0].channels;
  more["answered_by_device"] = answered;
  more["wait_p50_ns"] = last.totals.wait.percentile(50);
  more["egress_p50_ns"] = last.totals.egress.percentile(50);
  more["fill_p50_ns"] = channels.fill.percentile(50);
  more["device_p50_ns"] = channels.device.percentile(50);
  if (took.watts > 0) {
    more["watts"] = took.watts;
    more["packets_per_joule"] = mpps * 1e6 / took.watts;
  }
  if (took.utilisation >= 0) more["utilisation"] = took.utilisation;
  more["device_p50_us"] = static_cast<double>(channels.device.percentile(50)) * 1e-3;
  if (!channels.kernel.empty()) {
    more["kernel_p50_ns"] = channels.kernel.percentile(50);
    more["kernel_p50_us"] = static_cast<double>(channels.kernel.percentile(50)) * 1e-3;
  }
}

}  // namespace

Case measure_pipeline(const BenchOptions& o, const OpenDevices& devices, const Pipeline& pipeline, uint32_t batch,
                      const std::string& name, const std::shared_ptr<FrameCache>& frames, Progress& progress) {
  Case c{name, "Mpackets/s", {}};
  RunReport last;
  uint64_t answered = 0;
  DevicesTook took;
  Histogram latency;
  for (unsigned r = 0; r < o.repetitions; ++r) {
    progress.step(fmt::format("{} repetition {}", c.name, r + 1));
    const std::vector<RunReport> reports = run_together(o, devices, pipeline, batch, frames);
    double rate = 0;
    for (const RunReport& one : reports) {
      if (!one.conserved()) fail(Exit::kCheckFailed, "packet counts do not add up");
      rate += static_cast<double>(one.packets_in) / one.seconds * 1e-6;
      answered += one.offload.offloaded;
      latency.merge(one.totals.latency);
    }
    if (!devices.options.devices.empty()) {
      const std::string why = why_not_devices_alone(pipeline, devices, batch, reports);
      if (!why.empty()) return unmeasured(name, "on the host: " + why);
    }
    c.values.push_back(rate);
    last = reports[0];
    took.read(reports);
  }
  std::vector<double> sorted = c.values;
  std::sort(sorted.begin(), sorted.end());
  const double mpps = sorted[sorted.size() / 2];
  c.more = {
      {"ns_per_packet", 1e3 * o.workers / mpps},
      {"workers", o.workers},
      {"packets_each", last.packets_in},
      {"forwarded_part",
       last.packets_in != 0 ? static_cast<double>(last.packets_out) / static_cast<double>(last.packets_in) : 0.0}};
  // Of a batch, of all repetitions.
  c.more["mean_us"] = latency.mean() * 1e-3;
  c.more["p50_us"] = static_cast<double>(latency.percentile(50)) * 1e-3;
  c.more["p99_us"] = static_cast<double>(latency.percentile(99)) * 1e-3;
  c.more["latency_ns"] = {{"mean", last.totals.latency.mean()},
                          {"p50", last.totals.latency.percentile(50)},
                          {"p99", last.totals.latency.percentile(99)}};
  c.more["through_ns"] = {{"p50", last.totals.through.percentile(50)}, {"p99", last.totals.through.percentile(99)}};
  if (!last.devices.empty()) add_device_figures(c.more, last, answered, took, mpps);
  c.more["batch"] = {{"limit", last.batch.limit},
                     {"latency_target_ns", last.batch.target_ns},
                     {"raised", last.batch.raised},
                     {"lowered", last.batch.lowered}};
  return c;
}

Exit bench_report(const BenchOptions& o, const std::string& kind, const std::string& input_hash,
                  const Verified& verified, std::vector<Case> cases, const Json& more) {
  Json json{
      {"schema", 1},
      {"name", o.name.empty() ? "bench_" + kind : o.name},
      {"when", now_utc()},
      {"command", command_line()},
      {"machine", to_json(describe_machine())},
      {"git", sluice_revision()},
      {"seed", o.seed},
      {"input_hash", "sha256:" + input_hash},
      {"checked", fmt::format("{} of {} sampled results equal the oracle's ({})", verified.sample - verified.mismatches,
                              verified.sample, verified.oracle)},
      {"verified", {{"sample", verified.sample}, {"oracle", verified.oracle}, {"mismatches", verified.mismatches}}}};
  const auto device = more.find("device");
  json["defaults"] = defaults_left(o.standing, device != more.end() && *device != "cpu");
  json.update(more);
  // The one that took part, by the name that its driver gives: not what the machine has besides.
  const std::string gpu = json.value("gpu", "");
  json.erase("gpu");
  json["machine"]["gpu"] = gpu.empty() ? Json(nullptr) : Json(gpu);
  if (gpu.empty()) json["machine"]["driver"] = nullptr;
  json["results"] = Json::array();
  TextTable table({"case", "median", "min", "max", "n", "unit"});
  size_t nothing = 0;
  std::string first_reason;
  for (Case& c : cases) {
    if (!c.reason.empty()) {
      if (nothing++ == 0) first_reason = fmt::format("{}: {}", c.name, c.reason);
      json["results"].push_back({{"case", c.name}, {"reason", c.reason}});
      table.add({c.name, "-", "-", "-", "-", c.reason});
      continue;
    }
    const std::vector<double> as_measured = c.values;
    std::sort(c.values.begin(), c.values.end());
    const size_t n = c.values.size();
    const double middle = median(c.values);
    Json one{{"case", c.name},         {"unit", c.unit}, {"median", middle},     {"min", c.values.front()},
             {"max", c.values.back()}, {"n", n},         {"values", as_measured}};
    // The same in plain terms: things a second, and how far apart the runs were, relative to the median.
    one["rate"] = middle * 1e6;
    one["spread"] = middle > 0 ? (c.values.back() - c.values.front()) / middle : 0.0;
    one.update(c.more);
    json["results"].push_back(one);
    table.add({c.name, fmt::format("{:.3f}", middle), fmt::format("{:.3f}", c.values.front()),
               fmt::format("{:.3f}", c.values.back()), std::to_string(n), c.unit});
  }
  if (json_output()) {
    print_json(json);
  } else {
    const Machine m = describe_machine();
    print_out(table.str() + fmt::format("{}, {} cores, {}, {}; seed {}; {}\n", m.cpu, m.cores, m.compiler, m.build_type,
                                        o.seed, json["checked"].get<std::string>()));
  }
  if (cases.empty()) {
    fail(
        Exit::kCheckFailed, "nothing was measured: these options leave no case",
        "--device-only and --lookups-only measure only the device, and there is no device, or none that supports them");
  }
  if (nothing != 0)
    fail(Exit::kCheckFailed, fmt::format("{} of {} rows measured nothing; {}", nothing, cases.size(), first_reason));
  return Exit::kOk;
}

std::string no_cuda_device(const OpenDevices& devices) {
  if (!devices.options.devices.empty() && devices.options.devices[0]->info().kind == "cuda") return "";
  return fmt::format("it needs the memory of a CUDA device, and the device is {}", devices.label);
}

namespace {

void common_options(Command sub, Options& o) {
  sub.add_option("--seed", "N", o.seed, "Seed of all generated data")->capture_default_str();
  sub.add_number("--repetitions", "N", o.repetitions, "Repetitions, at least 5", Range(5u, 1000u));
  sub.add_number("--sample", "N", o.sample, "Results first compared with the reference",
                 Range(uint64_t{1}, uint64_t{100'000'000}));
  sub.add_option("--packets", "N", o.packets, "Packets or addresses per round (the default depends on the benchmark)");
  sub.add_option("--name", "NAME", o.name, "Name of the measurement in the JSON (default bench_KIND)");
  sub.add_flag("--spoil-check", o.spoil, "")->group("");
  add_device_options(sub, o.device, true);
}

void rule_options(Command sub, Options& o) {
  sub.add_word("--shape", "SHAPE", o.shape, "Shape of generated rules: acl, fw or ipc", {"acl", "fw", "ipc"});
  sub.add_number("--count", "N", o.count, "Generated rules", Range(10u, 1'000'000u));
}

void route_options(Command sub, Options& o) {
  sub.add_option("--routes", "FILE[,FILE]", o.routes, "Route files (default: generated)");
  sub.add_number("--ipv4", "N", o.ipv4, "Generated IPv4 routes", Range(0u, 2'000'000u));
  sub.add_number("--ipv6", "N", o.ipv6, "Generated IPv6 routes", Range(0u, 2'000'000u));
}

void device_options(Command sub, Options& o) {
  sub.add_option("--frames", o.frames, "Records per flight (a batch in flight to the device), comma-separated")
      ->delimiter(',')
      ->check(Range(32u, 65'536u))
      ->type_name("N,...");
  sub.add_option("--frame-repetitions", "N", o.frame_repetitions, "Flights per case and thread");
  sub.add_flag("--device-only", o.device_only, "Do not measure the CPU");
}

void add_bench_classify(Command bench) {
  auto c = std::make_shared<Options>();
  Command classify = add_subcommand(
      bench, "classify", "Subcommands", "Measures lookups in an access list, by packets drawn from its rules",
      "sluice bench classify --rules acl.rules --algorithm tuple_merge,tuple_space\nsluice bench classify --shape "
      "acl,fw,ipc --count 1000,10000,100000 -o json",
      [c] {
        c->standing.lists = c->algorithm.empty();
        return bench_classify(*c);
      });
  auto file = classify->add_option("--rules", "FILE", c->rules, "Rule file (default: generated)");
  add_format_option(*classify, c->format)->capture_default_str();
  classify->add_option("--algorithm", "NAME,...", c->algorithm,
                       fmt::format("One or more of: {} (default {}), each on the same packets",
                                   fmt::join(acl_algorithm_choices(), ", "), kDefaultAclAlgorithm));
  add_workers_option(*classify, c->workers);
  device_options(*classify, *c);
  classify
      ->add_words("--shape", "SHAPE,...", c->shapes, "Shape of generated rules: acl, fw or ipc", {"acl", "fw", "ipc"})
      ->excludes(file);
  classify
      ->add_numbers("--count", "N,...", c->counts, "Generated rules; every count is combined with every shape",
                    Range(10u, 1'000'000u))
      ->excludes(file);
  common_options(*classify, *c);
}

void add_bench_route(Command bench) {
  auto r = std::make_shared<Options>();
  Command route = add_subcommand(
      bench, "route", "Subcommands", "Measures lookups in route tables: uniform, prefix-weighted and Zipf addresses",
      "sluice bench route\nsluice bench route --routes rib4.txt,rib6.txt --algorithm poptrie -o json\n"
      "sluice bench route --like rib4.txt,rib6.txt --count 1000,100000,4000000 --algorithm dir24,sail,range24\n"
      "sluice bench route --ipv6 0 --count 10,1000,100000 --algorithm trie,dir24",
      [r] {
        if (!r->like.empty() && r->counts.empty()) r->counts = {100, 1'000, 10'000, 100'000, 1'000'000, 4'000'000};
        r->standing.routes = r->algorithm.empty() && r->counts.empty();
        return bench_route(*r);
      });
  route_options(*route, *r);
  route->add_option("--algorithm", "A4[,A6]", r->algorithm,
                    "Route algorithms; with --like or --count any number of them (default all)");
  r->counts.clear();
  route
      ->add_option("--like", r->like,
                   "Tables modelled on these route files at every --count, each family separately, with "
                   "prefix-weighted addresses")
      ->excludes("--routes", "--ipv4", "--ipv6")
      ->type_name("FILE[,FILE]");
  route
      ->add_option("--count", r->counts,
                   "Routes per family of tables modelled on --like, else on the generated ones (default with --like "
                   "100,1000,10000,100000,1000000,4000000)")
      ->delimiter(',')
      ->check(Range(10u, 4'000'000u))
      ->excludes("--routes")
      ->type_name("N,...");
  add_workers_option(*route, r->workers);
  device_options(*route, *r);
  route->add_flag("--lookups-only", r->lookups_only,
                  "On a CUDA device: only lookups whose addresses and results are in its memory");
  route
      ->add_option("--in-a-row", "N", r->in_a_row,
                   "On a CUDA device: also so many batches of all IPv4 addresses one after another, in memory of\nthe "
                   "first one (reused) and of their own (fresh)")
      ->check(Range(1u, 1000u));
  common_options(*route, *r);
}

void add_bench_pipeline(Command bench) {
  auto p = std::make_shared<Options>();
  Command pipeline = add_subcommand(
      bench, "pipeline", "Subcommands",
      "Measures the standard graph on packets in memory, with and without access list",
      "sluice bench pipeline\nsluice bench pipeline --acl acl.rules --routes rib4.txt,rib6.txt --workers 2 -o json",
      [p] {
        p->standing = {.lists = p->algorithm.empty(), .routes = p->route_algorithm.empty()};
        return bench_pipeline(*p);
      });
  pipeline->add_option("--acl", "FILE", p->rules, "Rule file (default: generated)");
  add_acl_options(*pipeline, p->format, p->algorithm);
  rule_options(*pipeline, *p);
  route_options(*pipeline, *p);
  pipeline->add_option("--route-algorithm", "A4[,A6]", p->route_algorithm, "Route algorithms");
  pipeline->add_option("--adjacencies", "FILE", p->adjacencies, "Adjacency file (default: synthetic)");
  pipeline->add_numbers("--sizes", "BYTES,...", p->sizes, "Frame sizes with FCS, comma-separated", Range(64u, 9618u));
  pipeline->add_numbers("--batch", "N,...", p->batches, "Packets per batch, comma-separated; each is measured",
                        Range(1u, Batch::kMaxPackets));
  add_latency_target_option(*pipeline, p->latency_target);
  add_workers_option(*pipeline, p->workers);
  common_options(*pipeline, *p);
}

}  // namespace

void add_bench(Command root) {
  Command bench = add_subcommand(
      root, "bench", "Tools",
      "Measures rates: median, spread, machine and input. A sample of results is first checked against a reference.",
      "sluice gen rules --shape acl --count 10000 --out acl.rules\nsluice bench classify --rules acl.rules\nsluice "
      "bench route -o json > bench/results/bench_route.json\nsluice "
      "bench pipeline --sizes 64,512,1518",
      nullptr);
  bench->require_subcommand(1);
  for (const Study* study : studies())
    for (const auto add : study->commands) add(*bench);
  add_bench_soak(*bench);
  add_bench_kinds(*bench);
  add_bench_live(*bench);
  add_bench_priorities(*bench);
  add_bench_wire(*bench);
  add_bench_study(*bench);
  add_bench_suite(*bench);
  add_bench_compare(*bench);
  add_bench_classify(*bench);
  add_bench_route(*bench);
  add_bench_pipeline(*bench);
}

}  // namespace sluice::app
