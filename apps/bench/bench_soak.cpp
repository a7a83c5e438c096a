// sluice bench soak: the standard graph for minutes while its tables change. Nothing may be lost, nothing may stop, and
// no packet may meet the tables of two generations.
// host only
#include <memory>

#include "apps/sluice/devices.h"
#include "bench.h"
#include "soak.h"

namespace sluice::app {
namespace {

Exit bench_soak(const SoakOptions& o) {
  if (o.batch % kVariants != 0)
    fail(Exit::kUsage, fmt::format("--batch: {} is not a multiple of {}", o.batch, kVariants),
         "every batch holds the same number of packets of each generation");
  const OpenDevices devices = open_devices(o.device);
  const BenchFolder folder;
  Progress progress("");
  const SoakInputs inputs = make_soak_inputs(o, devices, folder, progress);
  check_soak_variants(inputs, progress);
  const EndsInOrder in_order;
  const SoakRun run = run_soak(o, devices, inputs, progress);
  return report_soak(o, devices, inputs, run);
}

}  // namespace

void add_bench_soak(Command bench) {
  auto o = std::make_shared<SoakOptions>();
  o->device.device = "auto";
  o->device.mode = "persistent";
  Command sub = add_subcommand(
      bench, "soak", "Subcommands",
      "Runs the standard graph for minutes while its tables change at even intervals. Each generation's rules, routes "
      "and\nadjacencies pass different packets, so that packets that meet tables of two generations, and lost packets, "
      "are\ncounted. Any of them, or a device failure, ends it with exit code 5.",
      "sluice bench soak --device cuda --mode persistent --minutes 10 --swaps 1000\nsluice bench soak --device emu "
      "--minutes 0.2 --swaps 50",
      [o] { return bench_soak(*o); });
  add_device_options(*sub, o->device, true);
  sub->add_number("--minutes", "MINUTES", o->minutes, "How long to run", Range(0.001, 100'000.0));
  sub->add_number("--swaps", "N", o->swaps, "Table changes, at even intervals",
                  Range(uint64_t{0}, uint64_t{100'000'000}));
  sub->add_number("--rules", "N", o->rules, "Rules of each generation's access list", Range(10u, 1'000'000u));
  sub->add_number("--routes", "N", o->routes,
                  "Routes of each generation, or fewer if that many cannot be generated; about an eighth is IPv6",
                  Range(1000u, 500'000u));
  sub->add_option("--algorithm", "NAME", o->algorithm, "ACL algorithm");
  sub->add_option("--route-algorithm", "A4[,A6]", o->route_algorithm, "Route algorithms");
  sub->add_number("--size", "BYTES", o->size, "Frame size with FCS", Range(64u, 1518u));
  sub->add_number("--batch", "N", o->batch, "Packets per batch, a multiple of 4", Range(4, 4096));
  add_workers_option(*sub, o->workers);
  sub->add_flag("--shared-reader", o->shared,
                "One reader feeds all workers, as in run; otherwise each has its own input");
  sub->add_option("--seed", "N", o->seed, "Seed of all generated data")->capture_default_str();
  sub->add_option("--name", "NAME", o->name, "Name of the measurement in the JSON (default bench_soak)");
  sub->add_option("--spoil", o->spoil, "")->check(OneOf{{"rules", "adjacencies", "lost"}})->group("");
}

}  // namespace sluice::app
