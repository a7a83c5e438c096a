// host only
#include <fmt/format.h>

#include <initializer_list>

#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class DeviceElement : public Element {
 public:
  explicit DeviceElement(bool dpdk) : dpdk_(dpdk) { spec_.type = PortSpec::Type::kDevice; }

  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    PortSpec::Device& device = spec_.device;
    device.name = arguments.get_string(dpdk_ ? "PORT" : "DEVNAME");
    if (dpdk_) {
      device.method = "dpdk";
    } else if (arguments.has("METHOD")) {
      device.method = arguments.get_string("METHOD");
    }
    device.queues = static_cast<unsigned>(arguments.get_uint(dpdk_ ? "N_QUEUES" : "QUEUES"));
    if (device.name.empty())
      diagnostics.add(arguments.error_at(dpdk_ ? "PORT" : "DEVNAME", "the interface has no name"));
  }
  PortSpec port() const override { return spec_; }

 protected:
  PortSpec spec_;

 private:
  bool dpdk_;
};

class FromDevice final : public DeviceElement {
 public:
  explicit FromDevice(bool dpdk) : DeviceElement(dpdk) {}
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    DeviceElement::configure(arguments, diagnostics);
    spec_.device.promiscuous = arguments.get_bool("PROMISC");
    if (arguments.has("KERNEL")) spec_.device.kernel = arguments.get_bool("KERNEL");
    if (arguments.has("XDP")) spec_.device.xdp_mode = arguments.get_string("XDP");
    spec_.device.adapter_timestamps =
        arguments.has("TIMESTAMP_TYPE") && arguments.get_string("TIMESTAMP_TYPE") == "adapter";
  }
  ElementKind kind() const override { return ElementKind::kSource; }
  bool output_optional(unsigned) const override { return false; }
};

class ToDevice final : public DeviceElement {
 public:
  using DeviceElement::DeviceElement;
  ElementKind kind() const override { return ElementKind::kSink; }
};

template <typename Class>
ElementClass device_class(const char* name, bool dpdk) {
  ElementClass c;
  c.name = name;
  c.group = "Ports";
  if (dpdk) {
    c.arguments = {{.name = "PORT",
                    .kind = ArgumentKind::kString,
                    .positional = true,
                    .mandatory = true,
                    .help = "a number, a PCI address, or a virtual device with its arguments"},
                   {.name = "N_QUEUES",
                    .kind = ArgumentKind::kUint,
                    .default_text = "0",
                    .help = "queues; 0: one per worker, as far as the device has them",
                    .max = 256}};
  } else {
    c.arguments = {{.name = "DEVNAME",
                    .kind = ArgumentKind::kString,
                    .positional = true,
                    .mandatory = true,
                    .help = "the interface"},
                   {.name = "METHOD",
                    .kind = ArgumentKind::kChoice,
                    .help = "how packets are taken from the kernel or the NIC; default: the fastest that works here",
                    .choices = {"af_xdp", "af_packet", "tap", "dpdk", "pcap"}},
                   {.name = "QUEUES",
                    .kind = ArgumentKind::kUint,
                    .default_text = "0",
                    .help = "queues; 0: one per worker, as far as the device has them",
                    .max = 256}};
  }
  // How Click's own driver works: nothing here that a packet could show.
  const auto without_effect = [&c](std::initializer_list<const char*> names) {
    for (const char* ignored : names)
      c.arguments.push_back({.name = ignored, .kind = ArgumentKind::kRaw, .help = "has no effect here"});
  };
  if (dpdk) {
    without_effect({"MAXTHREADS", "THREADOFFSET", "BURST", "NDESC", "IQUEUE", "TIMEOUT", "VERBOSE", "BLOCKING"});
  } else {
    without_effect({"BURST", "HEADROOM", "TIMESTAMP"});
  }
  c.make = [dpdk](std::string_view) -> std::unique_ptr<Element> { return std::make_unique<Class>(dpdk); };
  return c;
}

ElementClass source_class(const char* name, bool dpdk) {
  ElementClass c = device_class<FromDevice>(name, dpdk);
  c.summary = dpdk ? "receives packets from a DPDK port" : "receives packets from an interface";
  c.description =
      "Each queue is received by one worker, which sends by the queue of the same number: the order of each flow is "
      "kept. Packets are stamped with the time of day when they are received. What the queue had no room for is "
      "counted "
      "as missed by the interface, not as a drop here.\nARP, IPv6 neighbor discovery, LLDP and packets to the "
      "interface's own addresses go to the kernel.";
  c.arguments.push_back(bool_argument("PROMISC", "false", "receives frames to other link-layer addresses too"));
  if (!dpdk) {
    c.arguments.push_back(
        bool_argument("KERNEL", "true",
                      "false: the kernel gets nothing that comes by the interface, not even ARP (AF_XDP, "
                      "AF_PACKET)"));
    c.arguments.push_back({.name = "XDP",
                           .kind = ArgumentKind::kChoice,
                           .help = "of AF_XDP; default: native where the driver has it",
                           .choices = {"native", "generic"}});
    c.arguments.push_back({.name = "TIMESTAMP_TYPE",
                           .kind = ArgumentKind::kChoice,
                           .default_text = "host",
                           .help = "adapter: the NIC's hardware stamps packets, by its own clock (AF_PACKET)",
                           .choices = {"host", "adapter"}});
  }
  c.inputs = {0, 0};
  c.example =
      dpdk ? "FromDPDKDevice(0) -> IPInput -> ToDPDKDevice(1);" : "FromDevice(eth0) -> IPInput -> ToDevice(eth1);";
  return c;
}

ElementClass sink_class(const char* name, bool dpdk) {
  ElementClass c = device_class<ToDevice>(name, dpdk);
  c.summary = dpdk ? "sends packets by a DPDK port" : "sends packets by an interface";
  c.description = "A packet that is longer than the MTU is dropped, and one that finds the ring full.";
  if (!dpdk) {
    c.description +=
        "\nWith an AdjacencyTable that has NEIGHBOURS true, packets to a next hop whose link-layer address is not "
        "known "
        "have the kernel ask for it: the first three wait for the answer, up to three seconds, and others are dropped.";
  }
  c.outputs = {0, 0};
  c.drops = {DropReason::kTxFull, DropReason::kTooBig};
  if (!dpdk) c.drops.push_back(DropReason::kUnresolvedNeighbour);
  c.example = dpdk ? "in -> ToDPDKDevice(1);" : "in -> ToDevice(eth1, METHOD af_packet);";
  return c;
}

}  // namespace

void register_device(Registry& registry) {
  registry.add(source_class("FromDevice", false));
  registry.add(sink_class("ToDevice", false));
  registry.add(source_class("FromDPDKDevice", true));
  registry.add(sink_class("ToDPDKDevice", true));
}

}  // namespace sluice
