// host only
// ClassifyMark.
#include <fmt/format.h>

#include <optional>

#include "elements/classify_mark/stage.h"
#include "elements/stage_element.h"
#include "formats/names.h"
#include "graph/router.h"
#include "qos/class_map.h"

namespace sluice {
namespace {

class ClassifyMark final : public StageElement<ClassifyMarkStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    const auto& given = arguments.rest();
    const auto wrong = [&](size_t argument, std::string message) {
      Diagnostic d = arguments.error_in(given[argument], std::move(message));
      d.expected = "marks with blanks or commas between them, LOW-HIGH, or others";
      diagnostics.add(std::move(d));
    };
    std::optional<size_t> others;
    for (size_t i = 0; i < given.size(); ++i) {
      if (i == kMaxQosClasses) return wrong(i, fmt::format("there are at most {} classes", kMaxQosClasses));
      const std::string_view list = given[i].text;
      constexpr const char* kBlanks = " ,\t\r\n";
      for (size_t at = list.find_first_not_of(kBlanks); at != std::string_view::npos;) {
        const size_t end = std::min(list.find_first_of(kBlanks, at), list.size());
        const std::string_view word = list.substr(at, end - at);
        at = list.find_first_not_of(kBlanks, end);
        if (word == "others") {
          if (others) return wrong(i, "others is given twice");
          others = i;
          continue;
        }
        const size_t dash = word.find('-');
        const auto low = names::number(word.substr(0, dash), ~uint32_t{0});
        const auto high = dash == std::string_view::npos ? low : names::number(word.substr(dash + 1), ~uint32_t{0});
        if (!low || !high || *low > *high) return wrong(i, fmt::format("'{}' is not a mark", word));
        for (uint32_t r = 0; r < stage_.ranges; ++r) {
          if (*low <= stage_.high[r] && stage_.low[r] <= *high)
            return wrong(i, fmt::format("'{}' is named by argument {} already", word, stage_.qos_class[r] + 1));
        }
        if (stage_.ranges == ClassifyMarkStage::kMaxRanges)
          return wrong(i, fmt::format("there are at most {} marks and ranges", ClassifyMarkStage::kMaxRanges));
        stage_.low[stage_.ranges] = static_cast<uint32_t>(*low);
        stage_.high[stage_.ranges] = static_cast<uint32_t>(*high);
        stage_.qos_class[stage_.ranges++] = static_cast<uint8_t>(i);
      }
    }
    classes_ = static_cast<unsigned>(given.size());
    stage_.others = static_cast<uint8_t>(others.value_or(given.empty() ? 0 : given.size() - 1));
  }
  std::optional<unsigned> output_count() const override { return classes_; }
  bool output_optional(unsigned) const override { return false; }

 private:
  unsigned classes_ = 1;
};

}  // namespace

void register_classify_mark(Registry& registry) {
  ElementClass c{.name = "ClassifyMark",
                 .group = "Quality of service",
                 .summary = "sends packets by the mark that an access list gave them"};
  c.description =
      "Each argument is a list of marks (`7`, `100-199`, `others`), whose packets leave by its output; all others "
      "leave by the last. A packet that no rule marked has mark 0. The paint becomes the output's number.";
  c.arguments = {{.name = "MARKS",
                  .kind = ArgumentKind::kString,
                  .positional = true,
                  .mandatory = true,
                  .repeated = true,
                  .help = "marks of an output, with blanks or commas between them"}};
  c.outputs = {1, kMaxQosClasses};
  c.example = "in -> ACL(TABLE edge) -> c :: ClassifyMark(7, 100-199, others); c[0] -> a; c[1] -> b; c[2] -> rest;";
  c.make = make_element<ClassifyMark>();
  registry.add(std::move(c));
}

}  // namespace sluice
