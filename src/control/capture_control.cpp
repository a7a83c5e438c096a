// host only
#include "control/capture_control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/base64.h"
#include "base/clock.h"
#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/json.h"
#include "control/packet_way.h"
#include "control/trace_control.h"
#include "tables/acl/sections.h"

namespace sluice {

using Json = nlohmann::ordered_json;

// Of the tables that the packet at hand met: most of a sequence met the same.
struct CaptureControl::Explained {
  std::shared_ptr<const TableSet> tables;
  std::unique_ptr<PacketWays> ways;
};

namespace {

// Where the rule of a packet stands. The fate has the rule of the last list that the packet met: of several lists it
// does not say which, so only the place in a run with one list is certain.
std::string rule_text(const FollowedPacket& packet) {
  if (packet.fate.rule == 0 || packet.tables == nullptr || packet.tables->acls.size() != 1) return {};
  const auto source = AclSourceView::open(*packet.tables->acls.begin()->second);
  if (!source.ok() || source->line(packet.fate.rule) == 0) return {};
  return fmt::format(", rule {}:{}", source->file(packet.fate.rule), source->line(packet.fate.rule));
}

}  // namespace

std::string fate_text(const FollowedPacket& packet) {
  std::vector<std::string> ends;
  if (packet.fate.reason != DropReason::kNone)
    ends.push_back(fmt::format("dropped: {} at {}", to_string(packet.fate.reason), packet.element));
  for (const FollowedPacket::End& end : packet.ends) {
    ends.push_back(end.reason == DropReason::kNone
                       ? fmt::format("left by {} (port {})", end.element, end.port)
                       : fmt::format("dropped: {} at {}", to_string(end.reason), end.element));
  }
  if (ends.empty()) ends.emplace_back("other packets were made of it");
  return fmt::format("{}{}", fmt::join(ends, ", "), rule_text(packet));
}

CaptureControl::CaptureControl(Engine& engine, std::shared_ptr<PacketTaps> taps)
    : engine_(engine), taps_(std::move(taps)) {}
CaptureControl::~CaptureControl() = default;

void CaptureControl::end(const char* why) {
  if (!ended_.empty()) return;
  ended_ = why;
  taps_->stop(Tap::kCapture);
}

void CaptureControl::run_ended() {
  over_ = true;
  over_ns_ = now_ns();
  if (order_ == nullptr) return;
  digest();
  end("the run ended");
}

bool CaptureControl::waits_for_reader(uint64_t now_ns) const {
  if (order_ == nullptr || told_ || order_->expired(now_ns)) return false;
  return now_ns < std::min(std::max(over_ns_, asked_ns_) + kPatienceNs, over_ns_ + kMostPatienceNs);
}

// Nobody reads what waits.
void CaptureControl::forget() {
  told_ = true;
  for (const auto& one : waiting_) order_->give_back(one.room_bytes);
  waiting_.clear();
  (void)order_->take();
}

void CaptureControl::digest() {
  if (order_ == nullptr) return;
  if (order_->expired(now_ns())) {
    end("nobody read it for 60 s");
    forget();
    return;
  }
  // Asked before they are taken: what is through by then is among them.
  all_taken_ = order_->on_their_way() == 0;
  auto through = order_->take_with_room();
  std::sort(through.begin(), through.end(), [](const auto& a, const auto& b) { return a->number < b->number; });
  Explained explained;
  for (auto& packet : through) {
    const Came came = wanted_.at.empty() ? Came::kYes : came_to(*packet, wanted_.at, explained);
    if (captured_ == packets_ || came != Came::kYes) {
      if (came == Came::kUnknown) ++unknown_;
      order_->give_back(packet->frame.size());
      continue;
    }
    const size_t kept = std::min<size_t>(packet->frame.size(), snap_bytes_);
    waiting_.push_back({packet->timestamp_ns, packet->input,
                        std::string(reinterpret_cast<const char*>(packet->frame.data()), kept), fate_text(*packet),
                        packet->wire_bytes, packet->frame.size()});
    packet.reset();
    if (++captured_ == packets_) end("it has as many packets as were asked for");
  }
}

Result<Json> CaptureControl::stop(uint64_t id) {
  if (order_ == nullptr || told_ || (id != 0 && id != id_))
    return Error("no capture runs", "sluice capture start --out FILE.pcapng");
  if (id == 0 && !ended_.empty()) forget();
  end("it was stopped");
  return show();
}

Result<void> CaptureControl::check_element(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& element : engine_.router().elements) names.push_back(element->name);
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return {};
  const std::string near = closest_match(name, names);
  return Error(fmt::format("the graph has no element '{}'", name),
               near.empty() ? std::string("sluice show runtime lists them") : fmt::format("did you mean '{}'?", near));
}

// What was recorded says it of the input, of the element that dropped it and of sinks; of those between, its way with
// the tables that it met.
CaptureControl::Came CaptureControl::came_to(const FollowedPacket& packet, const std::string& element,
                                             Explained& explained) const {
  if (packet.input == element || packet.element == element) return Came::kYes;
  if (std::any_of(packet.ends.begin(), packet.ends.end(), [&](const auto& end) { return end.element == element; }))
    return Came::kYes;
  const Router& router = engine_.router();
  const auto source = std::find_if(router.elements.begin(), router.elements.end(),
                                   [&](const auto& one) { return one->name == packet.input; });
  if (packet.generation < first_generation_ || packet.tables == nullptr || source == router.elements.end())
    return Came::kUnknown;
  if (explained.ways == nullptr || explained.tables != packet.tables) {
    explained.ways = std::make_unique<PacketWays>(router, *packet.tables);
    explained.tables = packet.tables;
  }
  std::string json;
  const WayEnd end = explained.ways->explain(static_cast<unsigned>(source - router.elements.begin()), packet.frame,
                                             packet.wire_bytes, packet.timestamp_ns, json);
  if (end.packets == 0) return Came::kUnknown;
  const bool came = std::any_of(end.elements.begin(), end.elements.end(),
                                [&](unsigned e) { return router.elements[e]->name == element; });
  return came ? Came::kYes : Came::kNo;
}

Result<Json> CaptureControl::start(Wanted wanted, uint64_t packets, uint32_t snap_bytes) {
  if (engine_.by_packets())
    return Error("the packet scheduler runs this graph, and follows no packets",
                 "run it without queues, timers and scripts");
  if (over_) return Error("the run ends");
  if (order_ != nullptr && !told_)
    return Error("a capture runs already", "end it: sluice capture stop; once more if its reader is gone");
  auto rules = parse_packet_filter(wanted.filter);
  if (!rules) return std::move(rules).error();
  const Router& router = engine_.router();
  for (const std::string* element : {&wanted.dropped_at, &wanted.at}) {
    if (auto ok = check_element(*element); !ok) return std::move(ok).error();
  }
  // The file's interfaces: the sources of the graph.
  Json inputs = Json::array();
  for (const auto& source : engine_.plan().sources) inputs.push_back(router.elements[source.element]->name);
  waiting_.clear();
  order_ = taps_->start(Tap::kCapture, std::move(*rules), uint64_t{1} << 62, kRoomBytes,
                        TapWish{wanted.dropped, wanted.dropped_at, kEachBytes, now_ns() + kLeaseNs});
  ++id_;
  wanted_ = std::move(wanted);
  unknown_ = 0;
  packets_ = packets;
  snap_bytes_ = snap_bytes;
  captured_ = 0;
  ended_.clear();
  said_ = told_ = all_taken_ = false;
  return Json{{"capture", id_}, {"inputs", inputs}, {"snap_bytes", snap_bytes}};
}

Result<Json> CaptureControl::read(uint64_t id) {
  if (order_ == nullptr || id != id_) return Error(fmt::format("there is no capture {}", id), "sluice capture start");
  asked_ns_ = now_ns();
  if (!order_->expired(asked_ns_)) order_->renew(asked_ns_ + kLeaseNs);
  Json json{{"packets", Json::array()}};
  size_t bytes = 0;
  while (!waiting_.empty() && bytes < kAnswerBytes) {
    const Captured& one = waiting_.front();
    json["packets"].push_back({{"timestamp_ns", one.timestamp_ns},
                               {"input", one.input},
                               {"bytes", one.wire_bytes},
                               {"frame", to_base64(one.frame)},
                               {"comment", one.comment}});
    bytes += one.frame.size() + one.comment.size();
    order_->give_back(one.room_bytes);
    waiting_.pop_front();
  }
  // Packets that wait for a neighbour or a rate may take their time, but of a run that is over no more come.
  const bool all = waiting_.empty() && (over_ || captured_ == packets_ || all_taken_);
  // That it asks again after the last answer says that the answer came.
  if (said_) told_ = true;
  said_ = !ended_.empty() && all;
  json["more"] = !waiting_.empty();
  json["missed"] = missed();
  json["ended"] = said_ ? Json(ended_) : Json(nullptr);
  return json;
}

Json CaptureControl::show() {
  Json json{{"running", order_ != nullptr && ended_.empty()},
            {"filter", wanted_.filter},
            {"dropped", wanted_.dropped},
            {"dropped_at", wanted_.dropped_at},
            {"at", wanted_.at},
            {"captured", captured_},
            {"waiting", waiting_.size()},
            {"on_their_way", order_ == nullptr ? 0 : order_->on_their_way()},
            {"missed", missed()},
            {"ended", ended_.empty() ? Json(nullptr) : Json(ended_)}};
  return json;
}

std::string capture_text(const Json& r) {
  std::string t = count_of(r, "captured") == 0 && !r.at("running").get<bool>() && r.at("ended").is_null()
                      ? std::string("no packets are captured; sluice capture start --out FILE.pcapng\n")
                      : fmt::format("{} captured, {} to be written, {} on their way{}{}\n",
                                    counted(count_of(r, "captured"), "packet"), with_commas(count_of(r, "waiting")),
                                    with_commas(count_of(r, "on_their_way")),
                                    word_of(r, "filter").empty() ? "" : "; filter: " + word_of(r, "filter"),
                                    (!word_of(r, "at").empty() ? "; at " + word_of(r, "at") : "") +
                                        (!word_of(r, "dropped_at").empty() ? "; dropped at " + word_of(r, "dropped_at")
                                         : r.at("dropped").get<bool>()     ? "; dropped"
                                                                           : ""));
  if (const uint64_t missed = count_of(r, "missed"); missed != 0)
    t += fmt::format("{} more found no room\n", counted(missed, "packet"));
  if (!r.at("ended").is_null()) t += fmt::format("ended: {}\n", word_of(r, "ended"));
  return t;
}

namespace {
bool has_capture(const Control& c) {
  return c.capture != nullptr;
}
}  // namespace

std::vector<CommandRow> capture_commands() {
  using namespace fields;
  constexpr uint64_t kMost = CaptureControl::kMostPackets, kMostBytes = FollowedPacket::kMostBytes;
  const auto text_of = [](const Json& r, Rates*) { return capture_text(r); };
  return {
      {.name = "show capture",
       .help = "The capture of a running process: packets captured, to be written, missed; how it ended.",
       .examples = "sluice show capture\nsluice show capture --interval 1 --control /run/sluice/control",
       .run = [](Control& c, Asked&) -> Result<Json> { return c.capture->show(); },
       .text = text_of,
       .watched = true,
       .there = has_capture},
      {.name = "capture",
       .help = "Captures packets of a running process. Each is kept as received, with its fate as comment. The process "
               "forwards on whatever becomes of the capture: packets that find no room are counted as missed.",
       .examples = "sluice capture start --dropped --out dropped.pcapng\nsluice show capture\nsluice capture stop"},
      {.name = "capture start",
       .help =
           "Writes the packets that are received and match to a pcapng file, until SIGINT, SIGTERM, 'sluice "
           "capture stop', --count or the end of the process. The comment of a packet is what became of it and the "
           "rule that decided; its interface is the input it came by. This command writes the file, with the rights "
           "of the user who calls it; the file appears when it is whole. Packets are written in the order in which "
           "they are through.",
       .examples = "sluice capture start --out all.pcapng\n"
                   "sluice capture start --dropped --count 1000 --out dropped.pcapng udp from any to any port 53\n"
                   "sluice capture start --at slow_path --out slow.pcapng\n"
                   "sluice capture start --dropped --out drops.pcapng --ring-size 100MiB --ring-files 10\n"
                   "sluice capture start --out - | tshark -r - -T fields -e frame.comment",
       .fields = {packet_filter(), flag("dropped").as("--dropped", "Only packets that were dropped"),
                  text("dropped_at", "").as("--dropped-at", "ELEMENT", "Only packets that this element dropped"),
                  text("at", "").as("--at", "ELEMENT", "Only packets that came to this element"),
                  number("packets", 1, kMost, kMost).as("--count", "N", "End after so many packets"),
                  number("snap_bytes", 1, kMostBytes, kMostBytes)
                      .as("--snaplen", "BYTES", "Bytes to keep of a packet, 1 to 16384 (default: 16384)")},
       .run =
           [](Control& c, Asked& asked) {
             return c.capture->start(
                 {asked.text("filter"), asked.flag("dropped"), asked.text("dropped_at"), asked.text("at")},
                 asked.number("packets"), static_cast<uint32_t>(asked.number("snap_bytes")));
           },
       .there = has_capture},
      {.name = "capture read",
       .help = "Takes packets of the capture.",
       .fields = {number("capture", 1, kMost, 0).means("the capture's number")},
       .run = [](Control& c, Asked& asked) { return c.capture->read(asked.number("capture")); },
       .on_command_line = false,
       .there = has_capture},
      {.name = "capture stop",
       .help = "Ends the capture; 'capture start' ends with a whole file.",
       .examples = "sluice capture stop",
       .fields = {number("capture", 1, kMost, 0)
                      .means("its number, where its reader asks; else the second time what nobody reads is forgotten")},
       .run = [](Control& c, Asked& asked) { return c.capture->stop(asked.number("capture")); },
       .text = text_of,
       .there = has_capture},
  };
}

}  // namespace sluice
