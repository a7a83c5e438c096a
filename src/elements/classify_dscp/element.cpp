// host only
// ClassifyDSCP. Sources: RFC 2474 (the field), RFC 4594 (what codepoints are for).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "elements/classify_dscp/stage.h"
#include "elements/stage_element.h"
#include "formats/qos_text.h"
#include "graph/router.h"

namespace sluice {
namespace {

class ClassifyDscp final : public StageElement<ClassifyDscpStage> {
 public:
  ClassifyDscp() { stage_.map = ClassMap::three_priorities(); }
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    const auto& given = arguments.rest();
    if (given.empty()) return;
    // The lists become lines of the one language in which classes are written.
    if (given.size() > kMaxQosClasses) {
      diagnostics.add(
          arguments.error_in(given[kMaxQosClasses], fmt::format("there are at most {} classes", kMaxQosClasses)));
      return;
    }
    classes_ = static_cast<unsigned>(given.size());
    std::string text;
    for (size_t i = 0; i < given.size(); ++i) {
      // Blanks join as commas do.
      std::string list;
      bool joins = false;
      for (const char c : given[i].text) {
        const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        if (!blank && c != ',' && joins && !list.empty() && list.back() != ',') list += ',';
        if (!blank) list += c;
        joins = blank;
      }
      text += fmt::format("class output-{} dscp {}\n", i, list);
    }
    auto model = parse_qos(text, "");
    if (model.ok()) {
      stage_.map = model->map;
      return;
    }
    for (const Diagnostic& d : model.error().diagnostics) {
      const size_t at = std::clamp<size_t>(d.line, 1, given.size()) - 1;
      Diagnostic here = arguments.error_in(given[at], d.message);
      here.expected = d.expected;
      here.suggestion = d.suggestion;
      diagnostics.add(std::move(here));
    }
  }
  std::optional<unsigned> output_count() const override { return classes_; }
  bool output_optional(unsigned) const override { return false; }

 private:
  unsigned classes_ = kDefaultQosClasses;
};

}  // namespace

void register_classify_dscp(Registry& registry) {
  ElementClass c{.name = "ClassifyDSCP", .group = "Quality of service", .summary = "sends packets by DSCP"};
  c.description =
      "Each argument is a list of codepoints, by number or name (`ef`, `af41`, `cs6`, `LOW-HIGH`, `others`), whose "
      "packets leave by its output; all others leave by the last. Without arguments there are three priorities by RFC "
      "4594: telephony and control, assured, default. The paint becomes the output's number. Packets that are not IP "
      "have codepoint 0.";
  c.arguments = {{.name = "DSCP",
                  .kind = ArgumentKind::kString,
                  .positional = true,
                  .repeated = true,
                  .help = "codepoints of an output, with blanks or commas between them"}};
  c.outputs = {1, kMaxQosClasses};
  c.example = "in -> IPInput -> c :: ClassifyDSCP; c[0] -> voice; c[1] -> video; c[2] -> data;";
  c.make = make_element<ClassifyDscp>();
  registry.add(std::move(c));
}

}  // namespace sluice
