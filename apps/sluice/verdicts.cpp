#include "verdicts.h"

#include <iterator>

#include "exec/account/hits.h"

namespace sluice::app {

void add_verdict_options(Command sub, VerdictFlags& flags) {
  sub.add_option(
      "--verdicts", "FILE", flags.verdicts,
      "One line per packet, in order, tab-separated: number, permit, deny, forward or drop, reason, position "
      "of the rule, next hop, the rule's list where there are several ('-': stdout)");
  sub.add_option("--dropped", "PCAPNG", flags.dropped,
                 "Every dropped packet, as received, with the reason, the element and the rule as its comment");
}

Verdicts::Verdicts(const VerdictFlags& flags, const Router& router) : router_(router) {
  if (!flags.verdicts.empty()) lines_ = need(AtomicFile::create(flags.verdicts), Exit::kIo);
  if (flags.dropped.empty()) return;
  dropped_ = need(PcapngWriter::create(flags.dropped), Exit::kIo);
  dropped_->add_interface("");
}

void Verdicts::prepare(RunOptions& options) {
  if (!lines_ && !dropped_) return;
  options.keeps_frames = dropped_.has_value();
  options.ended = [this](const PacketEnd& packet) { take(packet); };
}

void Verdicts::take(const PacketEnd& packet) {
  if (packet.snapshot->generation != generation_) look_at(*packet.snapshot);
  if (lines_) write_line(packet);
  if (dropped_ && packet.fate.reason != DropReason::kNone) write_dropped(packet);
}

void Verdicts::look_at(const Snapshot& snapshot) {
  generation_ = snapshot.generation;
  const TableSet& tables = snapshot.tables;
  routes_ = !tables.routes.empty();
  lists_.clear();
  rules_.reset();
  next_hops_.reset();
  if (tables.acls.size() > 1) {
    lists_.resize(router_.elements.size());
    for (const Program& program : snapshot.programs) {
      for (uint32_t s = 0; s < program.stage_count; ++s) {
        const StageSlot& slot = program.stages[s];
        if (const std::string* list = counted_table(slot, tables)) lists_[slot.element] = *list;
      }
    }
  }
  if (tables.acls.size() == 1) {
    if (auto rules = AclSourceView::open(*tables.acls.begin()->second); rules.ok()) rules_ = *rules;
  }
  if (tables.routes.size() == 1) {
    auto names = NextHopNames::open(tables.routes.begin()->second->section(SectionTag::kNextHopNames));
    if (names.ok()) next_hops_ = *names;
  }
}

void Verdicts::write_line(const PacketEnd& packet) {
  const PacketFate& fate = packet.fate;
  const bool left = fate.reason == DropReason::kNone;
  const bool denied = fate.reason == DropReason::kAclDeny || fate.reason == DropReason::kAclNoMatch ||
                      fate.reason == DropReason::kTinyFragment;
  const char* verdict = left ? (routes_ ? "forward" : "permit") : denied ? "deny" : "drop";
  text_.clear();
  fmt::format_to(std::back_inserter(text_), "{}\t{}\t{}\t{}\t", packet.number, verdict,
                 left ? "-" : to_string(fate.reason), fate.rule);
  if (fate.next_hop == 0) {
    text_ += '-';
  } else if (next_hops_) {
    text_ += next_hops_->name(fate.next_hop);
  } else {
    fmt::format_to(std::back_inserter(text_), "#{}", fate.next_hop);
  }
  // A rule's position is one in its list.
  if (!lists_.empty()) {
    text_ += '\t';
    text_ += fate.list < lists_.size() ? lists_[fate.list] : "-";
  }
  text_ += '\n';
  lines_->write(text_);
}

void Verdicts::write_dropped(const PacketEnd& packet) {
  const PacketFate& fate = packet.fate;
  text_.clear();
  fmt::format_to(std::back_inserter(text_), "{} at {}", to_string(fate.reason), router_.elements[fate.element]->name);
  if (fate.rule != 0) {
    if (rules_ && rules_->line(fate.rule) != 0) {
      fmt::format_to(std::back_inserter(text_), ", {}:{} (rule {})", rules_->file(fate.rule), rules_->line(fate.rule),
                     fate.rule);
    } else {
      fmt::format_to(std::back_inserter(text_), ", rule {}", fate.rule);
    }
  }
  const FrameHeader header{static_cast<uint32_t>(packet.frame.size()), packet.wire_bytes, packet.timestamp_ns};
  dropped_->append(header, packet.frame.data(), text_);
}

void Verdicts::end(std::vector<AtomicFile>& files) {
  if (lines_) files.push_back(std::move(*lines_));
  if (dropped_) files.push_back(std::move(dropped_->file()));
}

}  // namespace sluice::app
