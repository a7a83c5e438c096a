// What `sluice bench suite` measures beside the studies' cases (studies/).
// host only
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "case_list.h"
#include "studies/study.h"

namespace sluice::app {

namespace {

constexpr size_t kTableSuites = 2;

// In the order of reports: the studies stand behind the tables.
const std::vector<Suite>& own_suites() {
  static const std::vector<Suite> all = {
      {"classbench", "Access lists in the manner of ClassBench",
       "Lookups in generated lists of the shapes acl, fw and ipc, on one core, by packets drawn from the rules. set/: "
       "in the lists of the folder acl of SLUICE_DATA. acl/patched/: a list that changes while it is searched: lookups "
       "alone and beside a million changes a second, and changes as fast as they go, alone and beside lookups."},
      {"full-tables", "Route tables",
       "Longest-prefix matches in generated tables, on one core, by three kinds of "
       "addresses: uniform, drawn from the prefixes, and these skewed (Zipf). internet/: in the full tables of the "
       "folder rib of SLUICE_DATA. build4/, build6/: the time to build the lookup of a full table. patched4/: a full "
       "table that changes while it is searched; set_and_publish/N: N changes and one publication. Both of the tables "
       "of SLUICE_DATA, or of random ones of that size."},
      {"traffic-kinds", "Kinds of packets",
       "The pipeline with access list, routes, neighbours and options on each kind, in turns; of_ipv4: the ratio to "
       "the rate of plain IPv4 of the same rounds. drop/N: a filter that drops N % of its packets at random (/runs: 64 "
       "in a row); of_drop/0: the ratio to the same filter when it drops none. The lowest ratio comes first."},
      {"peers", "Other implementations of the same run",
       "DPDK's lookups, and zlib's and ISA-L's CRC-32, beside the project's own on the same keys; live/: the highest "
       "rate without loss of a cable, of the kernel's forwarding, of an XDP program that redirects frames unread, and "
       "of "
       "sluice run between veth pairs."},
      {"rfc2544", "Throughput by RFC 2544 (NDR, PDR), frame sizes, IMIX (RFC 6985), bursts (RFC 9004)",
       "sluice run between veth pairs. ndr/: the highest rate that loses nothing, and the latency at 98 % of it. pdr/: "
       "that loses 0.5 % at most. back-to-back/: the longest burst that loses nothing. loss/: the frames lost at "
       "tenths "
       "of what the tester offers. genome_abcdefg/: IMIX of seven sizes, each once."},
      {kMachineSuite, "The machine itself",
       "Fixed loops, the same in each build, before and after each case: a multiplication, a load from a cache and "
       "from "
       "memory that waits for the one before, reading memory, a system call; on all cores at once (beside cases of "
       "several threads); a thread woken, a packet by the loopback (beside live ports). compare judges rows against "
       "them. idle: the watts of the processors before the first case, where there is RAPL."},
  };
  return all;
}

}  // namespace

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = [] {
    std::vector<Suite> some = own_suites();
    for (size_t i = 0; i < studies().size(); ++i)
      some.insert(some.begin() + static_cast<ptrdiff_t>(kTableSuites + i), studies()[i]->suite);
    return some;
  }();
  return all;
}

const std::vector<Published>& published_figures() {
  static const std::vector<Published> all = [] {
    std::vector<Published> some;
    for (const Study* study : studies()) {
      const Json published = Json::parse(published_text(study->name));
      for (const Json& table : published.value("tables", Json::array())) {
        for (const Json& figure : table.at("figures")) {
          Json parameters = table.value("parameters", Json::object());
          parameters.update(figure.value("parameters", Json::object()));
          // One without rows may be a picture, or a range.
          for (const Json& pattern : figure.value("ours", Json::array())) {
            Published one;
            one.suite = study->suite.name;
            one.pattern = pattern;
            one.unit = figure.value("unit", table.at("unit").get<std::string>());
            one.value = figure.at("value");
            if (parameters.contains("packets") && parameters["packets"].is_number())
              one.packets = parameters["packets"];
            one.source =
                fmt::format("{}: {}", published.at("title").get<std::string>(), table.at("source").get<std::string>());
            one.hardware =
                figure.value("hardware", table.value("hardware", published.at("hardware").get<std::string>()));
            one.differs = table.at("differs");
            some.push_back(std::move(one));
          }
        }
      }
    }
    return some;
  }();
  return all;
}

bool is_time(const std::string& unit) {
  return unit == "us" || unit == "ns" || unit == "ms" || unit == "s";
}

namespace {

// Of lookups beside changes, and of changes, the last two cases.
void finish_updates(CaseList& list, const char* items) {
  const std::span<SuiteCase> all = list.all();
  for (SuiteCase& c : all.last(2)) {
    c.checks = false;
    c.probes = ProbeSet::kCores;
  }
  all.back().items = items;
}

// The compressed files of a folder of SLUICE_DATA, by name; none: it is not set, or there are none.
std::vector<std::string> data_files(const std::string& folder) {
  const char* data = std::getenv("SLUICE_DATA");
  std::vector<std::string> files;
  std::error_code none;
  if (data == nullptr || *data == 0) return files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(data) + "/" + folder, none))
    if (entry.is_regular_file(none) && entry.path().extension() == ".xz") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}
std::string stem_of(const std::string& file) {
  return std::filesystem::path(file).stem().string();
}

void add_without_data(CaseList& list, const char* suite, const char* name, const char* folder) {
  list.add(suite, name, {}).reason = fmt::format(
      "not measured here: SLUICE_DATA names no folder with {}/*.xz; the generated ones of the same kinds stand above",
      folder);
}

void add_classbench(CaseList& list) {
  for (const std::string shape : {"acl", "fw", "ipc"}) {
    // A linear search of long lists takes minutes and says what the short ones say.
    list.add("classbench", shape,
             {"classify", "--shape", shape, "--count", "1000", "--algorithm",
              "linear,tuple_space,tuple_merge,bitvec,auto", "--packets", list.lookups()});
    if (!list.quick()) {
      list.add("classbench", shape + "-large",
               {"classify", "--shape", shape, "--count", "10000,100000", "--algorithm",
                "tuple_space,tuple_merge,bitvec,auto", "--packets", list.lookups()});
    }
  }
  const std::vector<std::string> sets = data_files("acl");
  for (const std::string& file : sets) {
    const std::string name = stem_of(file);
    // One is enough for few minutes.
    if (name.ends_with("_trace") || (list.quick() && name != "acl1_10k")) continue;
    list.add("classbench", "set-" + name,
             {"classify", "--rules", file, "--algorithm", "tuple_space,tuple_merge,bitvec,auto", "--packets",
              list.lookups()},
             "set/");
  }
  if (sets.empty()) add_without_data(list, "classbench", "sets", "acl");
  const std::string lists = list.quick() ? "made_10000" : "(made_10000|(acl|fw|ipc)1_(1|10|100)k)";
  list.add_benchmark("classbench", "beside-updates", "formats_benches",
                     fmt::format("^acl/patched/lookup(_at_1M_updates)?/{}$", lists), {}, "");
  list.add_benchmark("classbench", "updates", "formats_benches",
                     fmt::format("^acl/patched/update(_and_lookup)?/{}$", lists), {}, "");
  finish_updates(list, "updates");
}

void add_full_tables(CaseList& list) {
  const std::vector<std::string> tables = data_files("rib");
  for (const auto& [name, pair] : {std::pair{"dir24-poptrie", "dir24,poptrie"},
                                   {"poptrie-range24", "poptrie,range24"},
                                   {"sail-planb", "sail,planb"},
                                   {"trie-trie", "trie,trie"}}) {
    list.add("full-tables", name,
             words_with({"route", "--algorithm", pair},
                        list.if_quick({"--ipv4", "20000", "--ipv6", "5000", "--packets", "65536"})));
    if (tables.empty() || (list.quick() && std::string(name) != "dir24-poptrie")) continue;
    list.add("full-tables", std::string("internet-") + name,
             words_with({"route", "--routes", fmt::format("{}", fmt::join(tables, ",")), "--algorithm", pair},
                        list.if_quick({"--packets", "65536"})),
             "internet/");
  }
  if (tables.empty()) add_without_data(list, "full-tables", "internet", "rib");
  list.add_benchmark("full-tables", "build", "tables_benches", "^build[46]/", {}, "").checks = false;
  list.add_benchmark(
      "full-tables", "beside-updates", "tables_benches",
      list.quick() ? "^patched4/dir24/lookup(_at_1M_changes)?/weighted$" : "^patched4/.*/lookup(_at_1M_changes)?/", {},
      "");
  list.add_benchmark("full-tables", "updates", "tables_benches",
                     list.quick() ? "^patched4/dir24/set_and_publish/10000" : "^patched4/.*/set_and_publish/", {}, "");
  finish_updates(list, "changes");
}

void add_traffic_kinds(CaseList& list) {
  list.add("traffic-kinds", "memory",
           words_with({"kinds"}, list.if_quick({"--ipv4", "10000", "--ipv6", "2000", "--packets", "200000"})));
}

void add_peers(CaseList& list) {
  const std::string dpdk = "the program was built without DPDK's libraries (-DSLUICE_BENCH_PEERS=ON)";
  list.add_benchmark("peers", "lpm4", "tables_benches", "^lookup4/(dir24|sail|poptrie|rte_.*)/weighted/4096",
                     {"rte_fib_", "rte_lpm"}, dpdk);
  list.add_benchmark("peers", "lpm6", "tables_benches", "^lookup6/(planb|poptrie|range24|rte_.*)/weighted/4096",
                     {"rte_fib6"}, dpdk);
  for (const std::string shape : {"acl", "fw", "ipc"}) {
    if (list.quick() && shape != "acl") continue;
    list.add_benchmark("peers", "acl-" + shape, "formats_benches",
                       fmt::format("^acl/lookup/(rte_acl|tuple_space/burst|tuple_merge/burst)/{}1_{}k$", shape,
                                   list.pick("(1|10|100)", "1")),
                       {"rte_acl"}, dpdk);
  }
  list.add_benchmark("peers", "crc", "net_benches",
                     list.quick() ? "^crc32/.*/fcs/(64|1518)$" : "^crc32/.*/(64|128|256|512|1024|1518|9000)$",
                     {"zlib", "isal"}, "the program was built without that library");
  // A build may lack AF_XDP, and a kernel XDP: cases of their own. One search in each pass.
  for (const auto& [name, ways] :
       {std::pair{"live", "cable,kernel,af_packet"}, {"live-xdp", "xdp"}, {"live-af_xdp", "af_xdp"}})
    list.add("peers", name, words_with({"live", "--ways", ways, "--repetitions", "1"}, list.searches()), "live/")
        .probes = ProbeSet::kLive;
}

void add_rfc2544(CaseList& list) {
  const std::string sizes = list.pick("64,128,256,512,1024,1280,1518,imix", "64,imix");
  // NDR: no packet may be lost. PDR: half a percent.
  for (const std::string way : {"af_packet", "af_xdp"}) {
    const Words common = words_with({"live", "--ways", way, "--sizes", sizes, "--repetitions", "1"}, list.searches());
    list.add("rfc2544", "ndr-" + way, words_with(common, {"--latency"}), "ndr/").probes = ProbeSet::kLive;
    list.add("rfc2544", "pdr-" + way, words_with(common, {"--loss", "0.5"}), "pdr/").probes = ProbeSet::kLive;
    if (!list.quick()) {
      list.add("rfc2544", "loss-" + way,
               words_with({"live", "--ways", way, "--sizes", sizes, "--repetitions", "1", "--loss-rate"},
                          list.searches()),
               "loss/")
          .probes = ProbeSet::kLive;
      // Each size of RFC 6985 that these ports take once, beside 7:4:1 above.
      list.add("rfc2544", "genome-" + way,
               words_with(
                   {"live", "--ways", way, "--sizes", "imix", "--imix", "abcdefg", "--repetitions", "1", "--latency"},
                   list.searches()),
               "genome_abcdefg/")
          .probes = ProbeSet::kLive;
    }
    // Of small frames alone: the larger ones pass at every rate.
    list.add("rfc2544", "back-to-back-" + way,
             words_with({"live", "--ways", way, "--sizes", list.pick("64,128", "64"), "--repetitions", "1",
                         "--back-to-back", list.pick("10", "1")},
                        list.searches()),
             "back-to-back/")
        .probes = ProbeSet::kLive;
  }
}

}  // namespace

std::vector<SuiteCase> suite_cases(bool quick, unsigned cores, const std::string& vpp) {
  CaseList list(quick, cores, vpp);
  add_classbench(list);
  add_full_tables(list);
  for (const Study* study : studies()) study->add_cases(list);
  add_traffic_kinds(list);
  add_peers(list);
  add_rfc2544(list);
  return list.take();
}

}  // namespace sluice::app
