// host only
// FromIPSummaryDump and ToIPSummaryDump. Source: their Click manual pages.
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <optional>

#include "base/atomic_file.h"
#include "base/input_file.h"
#include "elements/flow_element.h"
#include "elements/ip_input/stage.h"
#include "elements/summary_dump/fields.h"
#include "graph/click/config_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxLine = 65536;

// The lines of an input, in bounded memory.
class DumpLines {
 public:
  explicit DumpLines(InputFile file) : file_(std::move(file)) {}

  // True and a line, without its end; false behind the last. Errors: those of the input, a line of more than kMaxLine
  // bytes or with a NUL, which is no text.
  Result<bool> next(std::string_view* line) {
    size_t end = 0;
    while ((end = held_.find('\n', searched_)) == std::string::npos && !ended_) {
      held_.erase(0, at_);
      at_ = 0;
      searched_ = held_.size();
      if (searched_ > kMaxLine) break;
      held_.resize(searched_ + kMaxLine);
      auto n = file_.read_some(std::as_writable_bytes(std::span(held_)).subspan(searched_));
      held_.resize(searched_ + (n.ok() ? *n : 0));
      if (!n) return std::move(n).error();
      ended_ = *n == 0;
    }
    if (end == std::string::npos) end = held_.size();
    if (at_ == end && ended_ && end == held_.size()) return false;
    ++number_;
    *line = std::string_view(held_).substr(at_, end - at_);
    at_ = searched_ = std::min(end + 1, held_.size());
    if (line->size() > kMaxLine || line->find('\0') != std::string_view::npos) {
      return Error(fmt::format("{}:{}: {}", name(), number_,
                               line->size() > kMaxLine ? fmt::format("a line of more than {} bytes", kMaxLine)
                                                       : std::string("this is not text: a NUL")));
    }
    return true;
  }
  const std::string& name() const { return file_.name(); }
  uint64_t number() const { return number_; }

 private:
  InputFile file_;
  std::string held_;
  size_t at_ = 0, searched_ = 0;
  uint64_t number_ = 0;
  bool ended_ = false;
};

std::vector<std::string_view> dump_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (const ConfigSlice& s : split_words(text)) words.push_back(text.substr(s.offset, s.length));
  return words;
}

// The fields of a list; what is no field is reported.
template <typename Wrong>
std::vector<SummaryField> fields_of(const std::vector<std::string_view>& words, Wrong&& wrong) {
  std::vector<SummaryField> fields;
  for (const std::string_view word : words) {
    if (const auto field = summary_field(word)) {
      fields.push_back(*field);
      continue;
    }
    const std::string near = closest_match(word, summary_names());
    wrong(fmt::format("there is no field '{}'", word), near.empty() ? "" : fmt::format("did you mean {}?", near));
  }
  return fields;
}

void read_fields(const Arguments& arguments, Diagnostics& diagnostics, std::vector<SummaryField>* to) {
  if (!arguments.has("FIELDS")) return;
  const ArgumentValue& value = arguments.all("FIELDS").front();
  *to = fields_of(dump_words(value.text), [&](std::string message, std::string help) {
    Diagnostic d = arguments.error_in(value, std::move(message));
    d.suggestion = std::move(help);
    diagnostics.add(std::move(d));
  });
}

class FromSummary final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    path_ = arguments.get_string("FILE");
    text_ = arguments.get_string("DATA");
    if (arguments.has("FILE") == arguments.has("DATA"))
      diagnostics.add(arguments.error_at("DATA", "give either a file or DATA"));
    stop_ = arguments.get_bool("STOP");
    active_ = arguments.get_bool("ACTIVE");
    protocol_ = static_cast<uint8_t>(arguments.get_uint("PROTO"));
    read_fields(arguments, diagnostics, &fields_);
  }
  std::vector<FileUse> files() const override { return {{path_, false}}; }
  StageTraits stage_traits() const override {
    return {0, kFieldExtent | kFieldL3 | kFieldKey | kFieldDestination | kFieldPaint};
  }
  Result<void> start(FlowContext& context) override {
    if (path_.empty()) {
      lines_.emplace(InputFile::over(text_, name));
    } else {
      auto file = InputFile::open(path_);
      if (!file) return std::move(file).error();
      lines_.emplace(std::move(*file));
    }
    if (context.pushes(0)) context.wake();
    return {};
  }
  bool task(FlowContext& context) override {
    if (!context.pushes(0) || context.full_below(0)) return false;
    PacketBox packet = next(context);
    if (packet == nullptr) return false;
    context.push(0, std::move(packet));
    return true;
  }
  PacketBox pull(FlowContext& context, unsigned) override { return next(context); }
  Time time() const override { return Time::kMakes; }
  Result<void> finish(FlowContext&) override { return failed_ ? Result<void>(*failed_) : Result<void>(); }
  std::vector<Handler> handlers() override {
    return {value_handler("active", &active_, kFlagSpec, [](FlowContext& context) { context.wake(); })};
  }

 private:
  PacketBox next(FlowContext& context) {
    std::string_view line;
    while (active_ && !done_) {
      auto more = lines_->next(&line);
      if (!more || !*more) {
        done_ = true;
        if (!more) failed_ = std::move(more).error();
        if (!more || stop_) context.stop();
        break;
      }
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with('!')) {
        directive(context, line);
        continue;
      }
      const std::vector<std::string_view> words = dump_words(line);
      if (words.empty() || line[0] == '#') continue;
      if (PacketBox packet = packet_of(context, words)) return packet;
    }
    return nullptr;
  }
  void directive(FlowContext& context, std::string_view line) {
    std::vector<std::string_view> words = dump_words(line);
    if (words[0] != "!data" && words[0] != "!contents") return;
    words.erase(words.begin());
    fields_ = fields_of(words, [&](const std::string& message, const std::string&) { complain(context, message); });
  }
  PacketBox packet_of(FlowContext& context, const std::vector<std::string_view>& words) {
    SummaryPacket summary;
    summary.protocol = protocol_;
    if (words.size() < fields_.size() || fields_.empty()) {
      complain(context, fmt::format("{} words for {} fields", words.size(), fields_.size()));
      return nullptr;
    }
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (std::string wrong = summary.set(fields_[i], words[i]); !wrong.empty()) {
        complain(context, wrong);
        return nullptr;
      }
    }
    const std::vector<uint8_t> bytes = summary.headers();
    PacketBox packet = context.bring(bytes);
    if (packet == nullptr) return nullptr;
    Packet& p = packet->registers;
    p.wire_end = summary.wire_length(bytes.size());
    p.paint = summary.link;
    packet->timestamp_ns = summary.timestamp_ns;
    HeaderCheckStage mark;
    mark.family = 4;
    mark.lenient = 1;
    mark(p);
    return packet;
  }
  void complain(FlowContext& context, std::string_view what) {
    context.print_error(fmt::format("{}:{}: {}\n", lines_->name(), lines_->number(), what));
  }

  std::string path_, text_;
  std::optional<DumpLines> lines_;
  std::optional<Error> failed_;
  std::vector<SummaryField> fields_;
  uint8_t protocol_ = 6;
  bool stop_ = false, active_ = true, done_ = false;
};

class ToSummary final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    path_ = arguments.get_string("FILE");
    bad_packets_ = arguments.get_bool("BAD_PACKETS");
    read_fields(arguments, diagnostics, &fields_);
    if (fields_.empty()) fields_ = {SummaryField::kSource, SummaryField::kDestination};
  }
  std::vector<FileUse> files() const override { return {{path_, true}}; }
  Result<void> start(FlowContext& context) override {
    if (path_ != "-") {
      auto file = AtomicFile::create(path_);
      if (!file.ok()) return std::move(file).error();
      file_ = std::move(*file);
    }
    std::string names;
    for (const SummaryField field : fields_) names += fmt::format(" {}", summary_name(field));
    write(context, fmt::format("!IPSummaryDump 1.3\n!data{}\n", names));
    if (!context.pushes(0)) context.wake();
    return {};
  }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    std::string line;
    bool bad = false;
    for (const SummaryField field : fields_) {
      if (!line.empty()) line += ' ';
      const auto value = summary_of(*packet, field);
      bad |= !value;
      line += value ? *value : "-";
    }
    if (bad && bad_packets_) line = "!bad packet\n" + line;
    write(context, line + "\n");
    context.sent(std::move(packet));
  }
  bool task(FlowContext& context) override {
    PacketBox packet = context.pull(0);
    if (packet == nullptr) return false;
    push(context, 0, std::move(packet));
    return true;
  }
  Result<void> finish(FlowContext&) override {
    if (path_ == "-") return {};
    return file_.settle();
  }
  AtomicFile* file() override { return path_ == "-" ? nullptr : &file_; }

 private:
  void write(FlowContext& context, const std::string& text) {
    if (path_ == "-") {
      context.print_out(text);
    } else {
      file_.write(text);
      // A full disk ends the run now.
      if (!file_.ok()) context.end();
    }
  }

  std::string path_;
  AtomicFile file_;
  std::vector<SummaryField> fields_;
  bool bad_packets_ = false;
};

}  // namespace

void register_summary_dump(Registry& registry) {
  const auto flag = [](const char* name, const char* otherwise, const char* help) {
    return ArgumentSpec{.name = name, .kind = ArgumentKind::kBool, .default_text = otherwise, .help = help};
  };
  const std::string all = fmt::format("Fields: {}.", fmt::join(summary_names(), ", "));
  const ArgumentSpec fields{.name = "FIELDS", .kind = ArgumentKind::kRaw, .help = "field names, in order"};
  ElementClass from{.name = "FromIPSummaryDump", .group = "Ports", .summary = "makes IPv4 packets from lines of text"};
  from.description =
      "One line per packet, one word per field, as given by `!data` lines or FIELDS; '-' leaves a default (TCP, TTL "
      "100). Packets start with their IP header, hold only headers and are parsed; `ip_len` is their length on the "
      "wire; `link` is the paint. A line that cannot be read is reported and left out; one of more than 65536 bytes, "
      "or with a NUL, ends the run with an error. " +
      all + " Handler: `active`.";
  from.arguments = {{.name = "FILE",
                     .kind = ArgumentKind::kFilename,
                     .positional = true,
                     .help = "the dump, plain or compressed; '-': stdin"},
                    {.name = "DATA", .kind = ArgumentKind::kString, .help = "the dump itself"},
                    fields,
                    {.name = "PROTO",
                     .kind = ArgumentKind::kUint,
                     .default_text = "6",
                     .help = "the protocol if none is given",
                     .max = 255},
                    flag("STOP", "false", "true: ask the run to stop at the end"),
                    flag("ACTIVE", "true", "false: make nothing"),
                    flag("ZERO", "true", "accepted: fields that are not given are zero")};
  from.inputs = {0, 0};
  from.processing = "/a";
  from.example = "FromIPSummaryDump(in.txt, STOP true) -> filter;";
  from.make = make_flow<FromSummary>();
  registry.add(std::move(from));

  ElementClass to{
      .name = "ToIPSummaryDump", .group = "Ports", .summary = "writes fields of IPv4 packets as lines of text"};
  to.description = "One line per packet; '-' where the packet has no such field. " + all;
  to.arguments = {{.name = "FILE",
                   .kind = ArgumentKind::kFilename,
                   .positional = true,
                   .mandatory = true,
                   .help = "the dump; '-': stdout"},
                  fields,
                  flag("BAD_PACKETS", "false", "a line `!bad packet` precedes a packet that lacks a field")};
  to.outputs = {0, 0};
  to.processing = "a/";
  to.example = "out -> ToIPSummaryDump(-, FIELDS ip_src ip_dst sport dport);";
  to.make = make_flow<ToSummary>();
  registry.add(std::move(to));
}

}  // namespace sluice
